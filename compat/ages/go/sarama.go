// Sarama of any version: imported by the path that it had then.
package main

import (
	"context"
	"fmt"
	"time"

	sarama "CLIENT"
)

type client struct {
	transactional map[string]sarama.AsyncProducer
}

func newClient() driver { return &client{transactional: map[string]sarama.AsyncProducer{}} }

func config() *sarama.Config {
	wanted := sarama.NewConfig()
	wanted.Version = kafkaVersion
	wanted.Metadata.RefreshFrequency = time.Second
	wanted.Consumer.Offsets.Initial = sarama.OffsetOldest
	wanted.Consumer.Offsets.Retention = 24 * time.Hour // without it versions before 1.40 commit in a way that Kafka 4 refuses
	wanted.Producer.RequiredAcks = sarama.WaitForAll
	wanted.Producer.Return.Successes = true
	wanted.Producer.Flush.Frequency = 20 * time.Millisecond
	wanted.Producer.Partitioner = sarama.NewManualPartitioner
	return wanted
}

func (c *client) create(topic string) error {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
}

func send(producer sarama.AsyncProducer, topic string, first, end int) error {
	go func() {
		for i := first; i < end; i++ {
			number := []byte(fmt.Sprint(i))
			producer.Input() <- &sarama.ProducerMessage{
				Topic: topic, Partition: 0, Timestamp: timeOf(i), Key: sarama.StringEncoder(key(i)),
				Value:   sarama.StringEncoder(value(i)),
				Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: number}},
			}
		}
	}()
	for i := first; i < end; i++ {
		select {
		case <-producer.Successes():
		case refused := <-producer.Errors():
			return refused.Err
		}
	}
	return nil
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func (c *client) produce(topic, codec string, first, end int, idempotent bool) error {
	wanted := config()
	wanted.Producer.Compression = codecs[codec]
	if idempotent {
		wanted.Producer.Idempotent = true
		wanted.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, wanted)
	if err != nil {
		return err
	}
	defer producer.Close()
	return send(producer, topic, first, end)
}

type member struct {
	count   int
	numbers []int
	done    context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.numbers = append(m.numbers, numberOf(message.Value))
		session.MarkMessage(message, "")
		if len(m.numbers) == m.count {
			m.done()
			return nil
		}
	}
	return nil
}

func (c *client) read(topic, group string, count int, committed bool) ([]int, error) {
	wanted := config()
	if committed {
		readCommitted(wanted)
	}
	joined, err := sarama.NewConsumerGroup([]string{bootstrap}, group, wanted)
	if err != nil {
		return nil, err
	}
	defer joined.Close()
	until, done := context.WithCancel(context.Background())
	defer done()
	reader := &member{count: count, done: done}
	for until.Err() == nil {
		if err := joined.Consume(until, []string{topic}, reader); err != nil && until.Err() == nil {
			time.Sleep(200 * time.Millisecond) // the topic is not there yet
		}
	}
	return reader.numbers, nil
}

func (c *client) committed(topic, group string) (int64, error) {
	asked, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return 0, err
	}
	defer asked.Close()
	offsets, err := sarama.NewOffsetManagerFromClient(group, asked)
	if err != nil {
		return 0, err
	}
	defer offsets.Close()
	partition, err := offsets.ManagePartition(topic, 0)
	if err != nil {
		return 0, err
	}
	defer partition.Close()
	offset, _ := partition.NextOffset()
	return offset, nil
}

func (c *client) time(topic string, at int64) (int64, error) {
	asked, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return 0, err
	}
	defer asked.Close()
	return asked.GetOffset(topic, 0, at)
}
