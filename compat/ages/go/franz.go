// franz-go of any version.
package main

import (
	"context"
	"fmt"
	"time"

	"CLIENT/pkg/kgo"
	"CLIENT/pkg/kmsg"
)

type client struct{ transactional map[string]*kgo.Client }

func newClient() driver { return &client{transactional: map[string]*kgo.Client{}} }

var always = context.Background()

func connected(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation(),
	}, more...)...)
}

func (c *client) create(topic string) error {
	asked, err := connected()
	if err != nil {
		return err
	}
	defer asked.Close()
	request, one := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, 1, 1
	request.Topics, request.TimeoutMillis = append(request.Topics, one), 10_000
	found, err := request.RequestWith(always, asked)
	if err == nil && found.Topics[0].ErrorCode != 0 {
		err = fmt.Errorf("error %d", found.Topics[0].ErrorCode)
	}
	return err
}

func send(producer *kgo.Client, topic string, first, end int) error {
	var records []*kgo.Record
	for i := first; i < end; i++ {
		records = append(records, &kgo.Record{
			Topic: topic, Key: []byte(key(i)), Value: []byte(value(i)), Timestamp: timeOf(i),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(fmt.Sprint(i))}},
		})
	}
	return producer.ProduceSync(always, records...).FirstErr()
}

func codecOf(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

const linger = 20 * time.Millisecond

func (c *client) produce(topic, codec string, first, end int, idempotent bool) error {
	wanted := []kgo.Opt{kgo.ProducerLinger(linger), kgo.ProducerBatchCompression(codecOf(codec))}
	if !idempotent {
		wanted = append(wanted, kgo.DisableIdempotentWrite())
	}
	producer, err := connected(wanted...)
	if err != nil {
		return err
	}
	defer producer.Close()
	return send(producer, topic, first, end)
}

func (c *client) transaction(topic, id string, first, end int, commits bool) error {
	producer, known := c.transactional[id]
	if !known {
		made, err := connected(kgo.TransactionalID(id), kgo.ProducerLinger(linger))
		if err != nil {
			return err
		}
		producer, c.transactional[id] = made, made
	}
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	if err := send(producer, topic, first, end); err != nil {
		return err
	}
	return producer.EndTransaction(always, kgo.TransactionEndTry(commits))
}

func (c *client) read(topic, group string, count int, committed bool) ([]int, error) {
	isolation := kgo.ReadUncommitted()
	if committed {
		isolation = kgo.ReadCommitted()
	}
	member, err := connected(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(isolation), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer member.Close()
	var records []*kgo.Record
	for len(records) < count {
		records = append(records, member.PollRecords(always, count-len(records)).Records()...)
	}
	var numbers []int
	for _, each := range records {
		numbers = append(numbers, numberOf(each.Value))
	}
	return numbers, member.CommitRecords(always, records...)
}

func (c *client) committed(topic, group string) (int64, error) {
	asked, err := connected()
	if err != nil {
		return 0, err
	}
	defer asked.Close()
	request, one := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewOffsetFetchRequestTopic()
	one.Topic, one.Partitions = topic, []int32{0}
	request.Group, request.Topics = group, append(request.Topics, one)
	inGroup := kmsg.NewOffsetFetchRequestGroup() // version 8 and later ask so
	its := kmsg.NewOffsetFetchRequestGroupTopic()
	its.Topic, its.Partitions = topic, []int32{0}
	inGroup.Group, inGroup.Topics = group, append(inGroup.Topics, its)
	request.Groups = append(request.Groups, inGroup)
	found, err := request.RequestWith(always, asked)
	if err != nil {
		return 0, err
	}
	if len(found.Topics) > 0 {
		return found.Topics[0].Partitions[0].Offset, nil
	}
	return found.Groups[0].Topics[0].Partitions[0].Offset, nil
}

func (c *client) time(topic string, at int64) (int64, error) {
	asked, err := connected()
	if err != nil {
		return 0, err
	}
	defer asked.Close()
	request, one := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic()
	its := kmsg.NewListOffsetsRequestTopicPartition()
	its.Timestamp = at
	one.Topic, one.Partitions = topic, append(one.Partitions, its)
	request.ReplicaID, request.Topics = -1, append(request.Topics, one)
	found, err := request.RequestWith(always, asked)
	if err != nil {
		return 0, err
	}
	return found.Topics[0].Partitions[0].Offset, nil
}
