// Asks one version of Pulsar's Go client everything that all of its versions have: program SERVICE_URL PREFIX
//
// One line of JSON for each step: step, ok, detail. What came later stands in newer.go, without which older.go says so.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	batched, single, keys = 100, 10, 5
	wait                  = 30 * time.Second
	shortly               = 500 * time.Millisecond
	aMoment               = 100 * time.Millisecond
	seconds               = 5 * time.Second
)

var codecs = map[string]pulsar.CompressionType{
	"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD,
}

type asked struct {
	client pulsar.Client
	url    string
	prefix string
}

// What goes wrong in the middle of a step ends it.
type wrong struct{ error }

func check(err error) {
	if err != nil {
		panic(wrong{err})
	}
}

func same(got, wanted any, what string) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		check(fmt.Errorf("%s: %v, expected %v", what, got, wanted))
	}
}

func (a asked) topic(name string) string {
	return "persistent://public/default/" + a.prefix + "-" + name
}

func (a asked) producer(options pulsar.ProducerOptions) pulsar.Producer {
	producer, err := a.client.CreateProducer(options)
	check(err)
	return producer
}

func (a asked) subscribe(topic string, kind pulsar.SubscriptionType, change ...func(*pulsar.ConsumerOptions)) pulsar.Consumer {
	options := pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}
	for _, each := range change {
		each(&options)
	}
	consumer, err := a.client.Subscribe(options)
	check(err)
	return consumer
}

func keyOf(number int) string { return fmt.Sprintf("k%d", number%keys) }

// Writes numbers as text, keys in turn; gives the topic.
func (a asked) write(name string, count int, alone bool) string {
	producer := a.producer(pulsar.ProducerOptions{Topic: a.topic(name), DisableBatching: alone})
	defer producer.Close()
	sent := make(chan error, count)
	for number := 0; number < count; number++ {
		message := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number)), Key: keyOf(number)}
		producer.SendAsync(context.Background(), message,
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { sent <- err })
	}
	check(flush(producer))
	for range count {
		check(<-sent)
	}
	return a.topic(name)
}

// Versions have the one, or the other, or both.
func flush(producer pulsar.Producer) error {
	if newer, has := producer.(interface{ FlushWithCtx(context.Context) error }); has {
		return newer.FlushWithCtx(context.Background())
	}
	return producer.(interface{ Flush() error }).Flush()
}

func receive(consumer pulsar.Consumer, patience time.Duration) (pulsar.Message, bool) {
	waits, end := context.WithTimeout(context.Background(), patience)
	defer end()
	message, err := consumer.Receive(waits)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, false
	}
	check(err)
	return message, true
}

func received(consumer pulsar.Consumer) pulsar.Message {
	message, found := receive(consumer, wait)
	if !found {
		check(errors.New("no message"))
	}
	return message
}

func number(message pulsar.Message) int {
	found, err := strconv.Atoi(strings.TrimRight(string(message.Payload()), "."))
	check(err)
	return found
}

func taken(consumer pulsar.Consumer, count int) []int {
	var found []int
	for range count {
		message := received(consumer)
		consumer.Ack(message)
		found = append(found, number(message))
	}
	return found
}

func numbers(first, end int) []int {
	var found []int
	for i := first; i < end; i++ {
		found = append(found, i)
	}
	return found
}

func sorted(found []int) []int { sort.Ints(found); return found }

// Clients of today leave what is small as it is, so what goes alone is large.
func valueOf(number int) []byte {
	padding := 200
	if number >= batched {
		padding = 5000
	}
	return []byte(strconv.Itoa(number) + strings.Repeat(".", padding))
}

func (a asked) produce(codec string) {
	topic := a.topic("produce_" + codec)
	for _, part := range []struct {
		first, end int
		alone      bool
	}{{0, batched, false}, {batched, batched + single, true}} {
		producer := a.producer(pulsar.ProducerOptions{
			Topic: topic, Name: "ages-" + codec, CompressionType: codecs[codec], DisableBatching: part.alone,
			BatchingMaxPublishDelay: time.Second,
		})
		sent := make(chan error, part.end)
		for i := part.first; i < part.end; i++ {
			sequence := int64(i)
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
				Payload: valueOf(i), Key: keyOf(i), SequenceID: &sequence,
				Properties: map[string]string{"number": strconv.Itoa(i)}, EventTime: time.UnixMilli(int64(1000 + i)),
			}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { sent <- err })
		}
		check(flush(producer))
		for i := part.first; i < part.end; i++ {
			check(<-sent)
		}
		producer.Close()
	}
	consumer := a.subscribe(topic, pulsar.Exclusive)
	defer consumer.Close()
	for i := 0; i < batched+single; i++ {
		message := received(consumer)
		same(string(message.Payload()), string(valueOf(i)), "payload")
		same(message.Key(), keyOf(i), "key")
		same(message.Properties(), map[string]string{"number": strconv.Itoa(i)}, "properties")
		same(message.EventTime().UnixMilli(), 1000+i, "event time")
		consumer.Ack(message)
	}
	if more, found := receive(consumer, shortly); found {
		same(number(more), "none", "one more message")
	}
}

func (a asked) exclusive() {
	topic := a.write("exclusive", 30, false)
	consumer := a.subscribe(topic, pulsar.Exclusive)
	defer consumer.Close()
	_, err := a.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.Exclusive})
	same(err != nil, true, "a second consumer is refused")
	same(taken(consumer, 30), numbers(0, 30), "numbers")
}

func (a asked) failover() {
	topic := a.write("failover", 30, true)
	first, second := a.subscribe(topic, pulsar.Failover), a.subscribe(topic, pulsar.Failover)
	message, found := receive(first, seconds)
	if !found { // which of them is the active one is the broker's to say
		first, second = second, first
		message = received(first)
	}
	defer second.Close()
	first.Ack(message)
	same(append([]int{number(message)}, taken(first, 9)...), numbers(0, 10), "the first's numbers")
	first.Close()
	same(taken(second, 20), numbers(10, 30), "the second's numbers")
}

func few(options *pulsar.ConsumerOptions) { options.ReceiverQueueSize = 5 }

func (a asked) three(topic string, kind pulsar.SubscriptionType) []pulsar.Consumer {
	var consumers []pulsar.Consumer
	for range 3 {
		consumers = append(consumers, a.subscribe(topic, kind, few))
	}
	return consumers
}

func (a asked) shared() {
	topic := a.topic("shared")
	consumers := a.three(topic, pulsar.Shared)
	a.write("shared", 30, true)
	var all []int
	each := map[int]int{}
	for len(all) < 30 {
		for i, consumer := range consumers {
			if message, found := receive(consumer, aMoment); found {
				consumer.Ack(message)
				all = append(all, number(message))
				each[i]++
			}
		}
	}
	same(sorted(all), numbers(0, 30), "numbers")
	same(len(each), 3, "consumers that had some")
}

func (a asked) keyShared() {
	topic := a.topic("key_shared")
	consumers := a.three(topic, pulsar.KeyShared)
	a.write("key_shared", 60, true)
	where, order, all := map[string]int{}, map[string][]int{}, 0
	for all < 60 {
		for i, consumer := range consumers {
			message, found := receive(consumer, aMoment)
			if !found {
				continue
			}
			consumer.Ack(message)
			if before, known := where[message.Key()]; known {
				same(i, before, "the consumer of "+message.Key())
			}
			where[message.Key()] = i
			order[message.Key()] = append(order[message.Key()], number(message))
			all++
		}
	}
	for _, found := range order {
		same(sort.IntsAreSorted(found), true, "numbers of a key are in order")
	}
}

func (a asked) reader() {
	topic := a.write("reader", 30, false)
	reader, err := a.client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	check(err)
	defer reader.Close()
	var found []int
	for reader.HasNext() {
		message, err := reader.Next(context.Background())
		check(err)
		found = append(found, number(message))
	}
	same(found, numbers(0, 30), "numbers")
}

func (a asked) seekID() {
	consumer := a.subscribe(a.write("seek_id", 30, true), pulsar.Exclusive)
	defer consumer.Close()
	var messages []pulsar.Message
	for range 30 {
		messages = append(messages, received(consumer))
	}
	check(consumer.Seek(messages[10].ID()))
	found := number(received(consumer))
	same(found == 10 || found == 11, true, fmt.Sprintf("goes on there, with %d", found))
}

func (a asked) seekTime() {
	consumer := a.subscribe(a.write("seek_time", 30, false), pulsar.Exclusive)
	defer consumer.Close()
	same(taken(consumer, 30), numbers(0, 30), "numbers")
	check(consumer.SeekByTime(time.Now().Add(-time.Hour)))
	same(number(received(consumer)), 0, "the first number")
}

func (a asked) negative() {
	topic := a.write("negative", 3, true)
	consumer := a.subscribe(topic, pulsar.Shared, func(o *pulsar.ConsumerOptions) { o.NackRedeliveryDelay = 200 * time.Millisecond })
	defer consumer.Close()
	first := received(consumer)
	consumer.Nack(first)
	again := map[int]bool{}
	for range 3 {
		again[number(received(consumer))] = true
	}
	same(again[number(first)], true, "it comes again")
}

func (a asked) delayed() {
	topic := a.topic("delayed")
	consumer := a.subscribe(topic, pulsar.Shared)
	defer consumer.Close()
	producer := a.producer(pulsar.ProducerOptions{Topic: topic})
	defer producer.Close()
	sent := time.Now()
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("7"), DeliverAfter: 2 * time.Second})
	check(err)
	same(number(received(consumer)), 7, "the message")
	same(time.Since(sent) > 1500*time.Millisecond, true, "it comes later")
}

const definition = `{"type":"record","name":"Thing","namespace":"ages","fields":[{"name":"name","type":"string"},{"name":"size","type":"int"}]}`

type thing struct {
	Name string `json:"name" avro:"name"`
	Size int    `json:"size" avro:"size"`
}

func (a asked) schema(name string, schema pulsar.Schema) {
	topic := a.topic(name)
	consumer := a.subscribe(topic, pulsar.Exclusive, func(o *pulsar.ConsumerOptions) { o.Schema = schema })
	defer consumer.Close()
	producer := a.producer(pulsar.ProducerOptions{Topic: topic, Schema: schema})
	defer producer.Close()
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: &thing{"a", 7}})
	check(err)
	var found thing
	check(received(consumer).GetSchemaValue(&found))
	same(found, thing{"a", 7}, "the value")
}

func (a asked) severalTopics() {
	var topics []string
	for i := range 3 {
		topics = append(topics, a.write(fmt.Sprintf("several-%d", i), 10, false))
	}
	consumer := a.subscribe("", pulsar.Exclusive, func(o *pulsar.ConsumerOptions) { o.Topics = topics })
	defer consumer.Close()
	wanted := append(append(numbers(0, 10), numbers(0, 10)...), numbers(0, 10)...)
	same(sorted(taken(consumer, 30)), sorted(wanted), "numbers")
}

func (a asked) deadLetters() {
	letters := a.subscribe(a.topic("dead-letters"), pulsar.Shared)
	defer letters.Close()
	topic := a.topic("dead")
	consumer := a.subscribe(topic, pulsar.Shared, func(o *pulsar.ConsumerOptions) {
		o.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: a.topic("dead-letters")}
		o.NackRedeliveryDelay = aMoment
	})
	defer consumer.Close()
	producer := a.producer(pulsar.ProducerOptions{Topic: topic})
	defer producer.Close()
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("13")})
	check(err)
	ends := time.Now().Add(wait)
	for time.Now().Before(ends) {
		if message, found := receive(consumer, shortly); found {
			consumer.Nack(message)
		} else if letter, found := receive(letters, shortly); found {
			same(number(letter), 13, "the letter")
			return
		}
	}
	check(errors.New("no dead letter"))
}

type step struct {
	name string
	ask  func()
}

func (a asked) steps() []step {
	var found []step
	for _, codec := range []string{"none", "lz4", "zlib", "zstd"} {
		found = append(found, step{"produce_" + codec, func() { a.produce(codec) }})
	}
	found = append(found, []step{
		{"exclusive", a.exclusive}, {"shared", a.shared}, {"failover", a.failover}, {"key_shared", a.keyShared},
		{"reader", a.reader}, {"seek_id", a.seekID}, {"seek_time", a.seekTime}, {"negative_ack", a.negative},
		{"delayed", a.delayed}, {"several_topics", a.severalTopics}, {"dead_letters", a.deadLetters},
		{"avro", func() { a.schema("avro", pulsar.NewAvroSchema(definition, nil)) }},
		{"json", func() { a.schema("json", pulsar.NewJSONSchema(definition, nil)) }},
	}...)
	return append(found, a.later()...)
}

func outcome(each step) (found map[string]any) {
	found = map[string]any{"step": each.name, "ok": true, "detail": ""}
	defer func() {
		if failed := recover(); failed != nil {
			found["ok"], found["detail"] = false, fmt.Sprint(failed)
		}
	}()
	each.ask()
	return found
}

func main() {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: wait})
	if err != nil {
		panic(err)
	}
	for _, each := range (asked{client, os.Args[1], os.Args[2]}).steps() {
		line, _ := json.Marshal(outcome(each))
		fmt.Println(string(line))
	}
	os.Exit(0)
}
