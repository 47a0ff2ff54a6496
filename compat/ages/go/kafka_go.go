// kafka-go of any version.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafka "CLIENT"
)

type client struct{}

func newClient() driver { return client{} }

var always = context.Background()

func leader(topic string) (*kafka.Conn, error) {
	return kafka.DialLeader(always, "tcp", bootstrap, topic, 0)
}

// A transport of its own: the shared one remembers for seconds that a topic is unknown. And a connection's own
// CreateTopics asks in a version that Kafka 4 has not.
func asking() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 30 * time.Second, Transport: &kafka.Transport{}}
}

func (c client) create(topic string) error {
	wanted := kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}
	found, err := asking().CreateTopics(always, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return err
	}
	return found.Errors[topic]
}

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func (c client) produce(topic, codec string, first, end int, idempotent bool) error {
	producer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codecs[codec],
		BatchTimeout: 20 * time.Millisecond, Transport: &kafka.Transport{},
	}
	defer producer.Close()
	var records []kafka.Message
	for i := first; i < end; i++ {
		records = append(records, kafka.Message{
			Key: []byte(key(i)), Value: []byte(value(i)), Time: timeOf(i),
			Headers: []kafka.Header{{Key: "n", Value: []byte(fmt.Sprint(i))}},
		})
	}
	return producer.WriteMessages(always, records...)
}

func (c client) transaction(topic, id string, first, end int, commits bool) error {
	return errors.New("it has no transactions")
}

func (c client) read(topic, group string, count int, committed bool) ([]int, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: group, GroupTopics: []string{topic}, StartOffset: kafka.FirstOffset,
		WatchPartitionChanges: true, PartitionWatchInterval: time.Second, MaxWait: 200 * time.Millisecond,
	})
	var numbers []int
	var last kafka.Message
	for len(numbers) < count {
		message, err := reader.FetchMessage(always)
		if err != nil {
			return nil, err
		}
		numbers, last = append(numbers, numberOf(message.Value)), message
	}
	if err := reader.CommitMessages(always, last); err != nil {
		return nil, err
	}
	return numbers, reader.Close()
}

func (c client) committed(topic, group string) (int64, error) {
	found, err := asking().OffsetFetch(always, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0}}})
	if err != nil {
		return 0, err
	}
	return found.Topics[topic][0].CommittedOffset, nil
}

func (c client) time(topic string, at int64) (int64, error) {
	connection, err := leader(topic)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	return connection.ReadOffset(time.UnixMilli(at))
}
