// Of Sarama before 1.37.
package main

import (
	"errors"

	sarama "CLIENT"
)

var kafkaVersion = sarama.V2_1_0_0

func readCommitted(wanted *sarama.Config) {}

func (c *client) transaction(topic, id string, first, end int, commits bool) error {
	return errors.New("it has no transactions")
}
