package main

import (
	"bytes"
	"context"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (a asked) later() []step {
	return []step{
		{"cumulative", a.cumulative}, {"table_view", a.tableView}, {"chunks", a.chunks},
		{"exclusive_producer", a.exclusiveProducer}, {"transactions", a.transactions},
	}
}

func (a asked) cumulative() {
	topic := a.write("cumulative", 30, true)
	consumer := a.subscribe(topic, pulsar.Exclusive)
	var messages []pulsar.Message
	for range 30 {
		messages = append(messages, received(consumer))
	}
	check(consumer.AckCumulative(messages[19]))
	consumer.Close()
	again := a.subscribe(topic, pulsar.Exclusive)
	defer again.Close()
	same(taken(again, 10), numbers(20, 30), "what is left")
}

func (a asked) tableView() {
	topic := a.write("table", 30, false)
	var payload []byte
	view, err := a.client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic, Schema: pulsar.NewBytesSchema(nil), SchemaValueType: reflect.TypeOf(payload),
	})
	check(err)
	defer view.Close()
	same(view.Size(), keys, "keys")
}

func (a asked) chunks() {
	topic := a.topic("chunks")
	consumer := a.subscribe(topic, pulsar.Exclusive)
	defer consumer.Close()
	producer := a.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true})
	defer producer.Close()
	large := bytes.Repeat([]byte("0123456789abcdef"), 12<<16) // 12 MB
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: large})
	check(err)
	same(bytes.Equal(received(consumer).Payload(), large), true, "the payload comes whole")
}

func (a asked) exclusiveProducer() {
	alone := pulsar.ProducerOptions{Topic: a.topic("alone"), ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first := a.producer(alone)
	defer first.Close()
	_, err := a.client.CreateProducer(alone)
	same(err != nil, true, "a second producer is refused")
}

func (a asked) transactions() {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: a.url, EnableTransaction: true})
	check(err)
	defer client.Close()
	topic := a.topic("transactions")
	consumer := a.subscribe(topic, pulsar.Exclusive)
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1, DisableBatching: true})
	check(err)
	for i := range 3 {
		transaction, err := client.NewTransaction(time.Minute)
		check(err)
		_, err = producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: valueOf(i), Transaction: transaction})
		check(err)
		if i == 1 {
			check(transaction.Abort(context.Background()))
		} else {
			check(transaction.Commit(context.Background()))
		}
	}
	same(taken(consumer, 2), []int{0, 2}, "what was committed")
	_, more := receive(consumer, shortly)
	same(more, false, "what was aborted is read")
}
