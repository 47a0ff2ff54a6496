// Of Sarama since 1.37, which has transactions.
package main

import sarama "CLIENT"

var kafkaVersion = sarama.V2_1_0_0

func readCommitted(wanted *sarama.Config) { wanted.Consumer.IsolationLevel = sarama.ReadCommitted }

func (c *client) transaction(topic, id string, first, end int, commits bool) error {
	producer, known := c.transactional[id]
	if !known {
		wanted := config()
		wanted.Producer.Idempotent = true
		wanted.Net.MaxOpenRequests = 1
		wanted.Producer.Transaction.ID = id
		made, err := sarama.NewAsyncProducer([]string{bootstrap}, wanted)
		if err != nil {
			return err
		}
		producer, c.transactional[id] = made, made
	}
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := send(producer, topic, first, end); err != nil {
		return err
	}
	if commits {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}
