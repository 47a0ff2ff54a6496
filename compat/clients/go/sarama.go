// Sarama, the most used Kafka client of Go.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	t0             = 1_700_000_000_000 // ms
	volume         = 20_000            // records: with a handful a broker may lose most and pass
	manyPartitions = 12
)

var (
	bootstrap = flag.String("bootstrap", "", "HOST:PORT")
	only      []string
	admin     sarama.ClusterAdmin
)

type check struct {
	name string
	body func() string
}

// anyTime is the configuration of topics whose records may be of any time, and stay.
var anyTime = map[string]string{"message.timestamp.before.max.ms": "9223372036854775807", "retention.ms": "-1"}

// ---- help: a check panics when something is not as it should be ----

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func same(got, expected any, what string) {
	if !reflect.DeepEqual(got, expected) {
		panic(fmt.Sprintf("%s: got %v, expected %v", what, got, expected))
	}
}

func fresh(prefix string) string { return fmt.Sprintf("compat-%s-%x", prefix, rand.Int63()) }

func until(what string, ready func() bool) {
	for end := time.Now().Add(60 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			panic("waited 60 s for " + what)
		}
	}
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.ClientID = "compat-sarama"
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return c
}

func newTopic(prefix string, partitions int32, settings map[string]string) string {
	name, entries := fresh(prefix), map[string]*string{}
	for key, value := range settings {
		entries[key] = &value
	}
	must(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries}, false))
	return name
}

func produce(c *sarama.Config, messages []*sarama.ProducerMessage) {
	producer := got(sarama.NewSyncProducer([]string{*bootstrap}, c))
	defer producer.Close()
	must(producer.SendMessages(messages))
}

func numbers(topic string, count int) (messages []*sarama.ProducerMessage) {
	for i := range count {
		text := sarama.StringEncoder(fmt.Sprint(i))
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Key: text, Value: text})
	}
	return
}

func readTopic(topic string, count int, partitions int32, from int64) (messages []*sarama.ConsumerMessage) {
	consumer := got(sarama.NewConsumer([]string{*bootstrap}, config()))
	defer consumer.Close()
	inbox := make(chan *sarama.ConsumerMessage, 1000)
	for p := range partitions {
		partition := got(consumer.ConsumePartition(topic, p, from))
		defer partition.Close()
		go func() {
			for message := range partition.Messages() {
				inbox <- message
			}
		}()
	}
	late := time.After(60 * time.Second)
	for len(messages) < count {
		select {
		case message := <-inbox:
			messages = append(messages, message)
		case <-late:
			panic(fmt.Sprintf("%d of %d records in 60 s", len(messages), count))
		}
	}
	return
}

func values(messages []*sarama.ConsumerMessage) (texts []string) {
	for _, message := range messages {
		texts = append(texts, string(message.Value))
	}
	return
}

func upTo(count int) (texts []string) {
	for i := range count {
		texts = append(texts, fmt.Sprint(i))
	}
	return
}

// numbered is what complete looks for.
func numbered(topic, name string, count int) (messages []*sarama.ProducerMessage) {
	for i := range count {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(name, " ", i))})
	}
	return
}

// complete tells whether each producer's numbered values are all there, once, and within a partition in the order in which
// they were sent.
func complete(messages []*sarama.ConsumerMessage, sent map[string]int) {
	last, seen := map[string]int{}, map[string]map[int]bool{}
	for _, message := range messages {
		name, text, _ := strings.Cut(string(message.Value), " ")
		number, place := got(strconv.Atoi(text)), fmt.Sprint(name, " in ", message.Partition)
		if before, there := last[place]; there && number <= before {
			panic(fmt.Sprintf("%s: %d behind %d", place, number, before))
		}
		last[place] = number
		if seen[name] == nil {
			seen[name] = map[int]bool{}
		}
		seen[name][number] = true
	}
	for name, count := range sent {
		same(len(seen[name]), count, "records of "+name)
	}
}

// control has the runner do something: restart the broker, or tell how many answers were lost.
func control(asked string) string {
	connection := got(net.Dial("tcp", os.Getenv("COMPAT_CONTROL")))
	defer connection.Close()
	fmt.Fprintln(connection, asked)
	return strings.TrimSpace(got(bufio.NewReader(connection).ReadString('\n')))
}

// ---- records ----

func produceConsume() string {
	topic := newTopic("basic", manyPartitions, nil)
	var sent []*sarama.ProducerMessage
	expected := map[string][]string{}
	for i := range volume {
		key, value := fmt.Sprintf("key-%d", i%50), fmt.Sprint(i)
		sent = append(sent, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value)})
		expected[key] = append(expected[key], value)
	}
	produce(config(), sent)
	found := map[string][]string{}
	for _, message := range readTopic(topic, volume, manyPartitions, sarama.OffsetOldest) {
		found[string(message.Key)] = append(found[string(message.Key)], string(message.Value))
	}
	same(found, expected, "values by key")
	return ""
}

func headers() string {
	topic := newTopic("headers", 1, nil)
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	given := []sarama.RecordHeader{
		{Key: []byte("trace"), Value: []byte("one")}, {Key: []byte("trace"), Value: []byte("two")},
		{Key: []byte("empty"), Value: []byte{}}, {Key: []byte("binary"), Value: binary}, {Key: []byte("none"), Value: nil},
	}
	produce(config(), []*sarama.ProducerMessage{{Topic: topic, Value: sarama.StringEncoder("x"), Headers: given}})
	for i, header := range readTopic(topic, 1, 1, sarama.OffsetOldest)[0].Headers {
		same(string(header.Key), string(given[i].Key), "header key")
		same(bytes.Equal(header.Value, given[i].Value), true, "header value")
	}
	return ""
}

func nulls() string {
	topic := newTopic("nulls", 1, nil)
	produce(config(), []*sarama.ProducerMessage{
		{Topic: topic, Value: sarama.StringEncoder("no key")},
		{Topic: topic, Key: sarama.StringEncoder("tombstone")},
		{Topic: topic},
	})
	messages := readTopic(topic, 3, 1, sarama.OffsetOldest)
	for i, expected := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		same([2]bool{messages[i].Key == nil, messages[i].Value == nil}, expected, "null key, null value")
	}
	return ""
}

func codec(kind sarama.CompressionCodec) func() string {
	return func() string {
		topic, c := newTopic(kind.String(), 1, nil), config()
		c.Producer.Compression = kind
		var sent []*sarama.ProducerMessage
		var expected []string
		for i := range volume {
			value := fmt.Sprint(i) + strings.Repeat(" a line that repeats itself", 8)
			sent = append(sent, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
			expected = append(expected, value)
		}
		produce(c, sent)
		same(values(readTopic(topic, volume, 1, sarama.OffsetOldest)), expected, "values")
		return ""
	}
}

func timestamps() string {
	topic := newTopic("timestamps", 1, anyTime)
	sent := numbers(topic, 10)
	for i, message := range sent {
		message.Timestamp = time.UnixMilli(t0 + int64(i))
	}
	produce(config(), sent)
	for i, message := range readTopic(topic, 10, 1, sarama.OffsetOldest) {
		same(message.Timestamp.UnixMilli(), t0+int64(i), "timestamp")
	}
	return ""
}

func largeMessage() string {
	topic, large := newTopic("large", 1, nil), bytes.Repeat([]byte("0123456789"), 90_000)
	produce(config(), []*sarama.ProducerMessage{{Topic: topic, Value: sarama.ByteEncoder(large)}})
	same(bytes.Equal(readTopic(topic, 1, 1, sarama.OffsetOldest)[0].Value, large), true, "the large value is equal")
	return ""
}

func acks(level sarama.RequiredAcks) func() string {
	return func() string {
		topic, half := newTopic("acks", manyPartitions, nil), volume/2
		time.Sleep(2 * time.Second) // with acks=0 nobody tells that a partition has no leader yet
		var both sync.WaitGroup
		var problem any
		for _, name := range []string{"big", "single"} {
			both.Add(1)
			go func() {
				defer both.Done()
				defer func() {
					if found := recover(); found != nil {
						problem = found
					}
				}()
				c := config()
				c.Producer.RequiredAcks, c.Net.MaxOpenRequests = level, 1
				if name == "single" {
					c.Producer.Flush.MaxMessages = 1
				} else {
					c.Producer.Flush.Frequency = 20 * time.Millisecond
				}
				produce(c, numbered(topic, name, half))
			}()
		}
		both.Wait()
		if problem != nil {
			panic(problem)
		}
		complete(readTopic(topic, volume, manyPartitions, sarama.OffsetOldest), map[string]int{"big": half, "single": half})
		return ""
	}
}

func idempotent() string {
	topic, c := newTopic("idempotent", 1, nil), config()
	c.Producer.Idempotent, c.Net.MaxOpenRequests, c.Producer.Flush.MaxMessages = true, 1, 20
	sent := numbers(topic, volume)
	produce(c, sent)
	for i, message := range sent {
		same(message.Offset, int64(i), "offset told to the producer")
	}
	same(values(readTopic(topic, volume, 1, sarama.OffsetOldest)), upTo(volume), "values")
	return ""
}

func restart() string {
	topic, group, half := newTopic("restart", manyPartitions, nil), fresh("group"), volume/2
	messages := numbered(topic, "restart", half)
	c := config()
	c.Producer.Idempotent, c.Net.MaxOpenRequests, c.Producer.Retry.Max = true, 1, 50
	producer := got(sarama.NewSyncProducer([]string{*bootstrap}, c))
	defer producer.Close()
	must(producer.SendMessages(messages[:5000]))
	reader := join(topic, group, config())
	until("5,000 records", func() bool { return len(reader.read()) == 5000 })
	reader.commit()
	reader.leave()
	committed := offsetsOf(group, topic)
	control("restart")
	must(producer.SendMessages(messages[5000:]))
	var all int64
	until("the committed offsets to be told again", func() bool {
		defer func() { recover() }() // the administrator's connection was cut
		all = 0
		same(offsetsOf(group, topic), committed, "committed offsets after the restart")
		for _, offset := range committed {
			all += max(offset, 0)
		}
		return true
	})
	same(all, int64(5000), "what was committed in all")
	again := join(topic, group, config())
	until("the rest", func() bool { return len(again.read()) >= half-5000 })
	again.leave()
	same(len(again.read()), half-5000, "what the group reads after the restart")
	complete(readTopic(topic, half, manyPartitions, sarama.OffsetOldest), map[string]int{"restart": half})
	return ""
}

func offsetsOf(group, topic string) map[int32]int64 {
	asked, found := make([]int32, manyPartitions), map[int32]int64{}
	for i := range asked {
		asked[i] = int32(i)
	}
	answer := got(admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: asked}))
	for partition, block := range answer.Blocks[topic] {
		must(func() error {
			if block.Err != sarama.ErrNoError {
				return block.Err
			}
			return nil
		}())
		found[partition] = block.Offset
	}
	return found
}

// ---- groups ----

// member is one consumer of a group that remembers what it owned and read.
type member struct {
	sync.Mutex
	group sarama.ConsumerGroup
	owned int
	seen  []string
	now   sarama.ConsumerGroupSession
	stop  context.CancelFunc
	ended chan struct{}
}

func join(topic, group string, c *sarama.Config) *member {
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: got(sarama.NewConsumerGroup([]string{*bootstrap}, group, c)), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := m.group.Consume(ctx, []string{topic}, m); errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
		}
	}()
	return m
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Lock()
	defer m.Unlock()
	m.owned, m.now = 0, session
	for _, partitions := range session.Claims() {
		m.owned += len(partitions)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			session.MarkMessage(message, "")
			m.Lock()
			m.seen = append(m.seen, string(message.Value))
			m.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) owns() int { m.Lock(); defer m.Unlock(); return m.owned }

func (m *member) read() []string { m.Lock(); defer m.Unlock(); return append([]string{}, m.seen...) }

func (m *member) count() int { m.Lock(); defer m.Unlock(); return len(m.seen) }

func (m *member) commit() { m.Lock(); defer m.Unlock(); m.now.Commit() }

func (m *member) leave() { m.stop(); <-m.ended; m.group.Close() }

func groupEager() string {
	topic, group, c := newTopic("group", 4, nil), fresh("group"), config()
	first := join(topic, group, c)
	until("the first member to own everything", func() bool { return first.owns() == 4 })
	second := join(topic, group, c)
	until("both to own two partitions", func() bool { return first.owns() == 2 && second.owns() == 2 })
	produce(config(), numbers(topic, volume))
	until("all records", func() bool { return first.count()+second.count() >= volume })
	all, expected := append(first.read(), second.read()...), upTo(volume)
	sort.Strings(all)
	sort.Strings(expected)
	same(all, expected, "records of the group")
	second.leave()
	until("the first member to own everything again", func() bool { return first.owns() == 4 })
	first.leave()
	return "4, then 2 + 2, then 4"
}

func commitResume() string {
	topic, group := newTopic("commit", 1, nil), fresh("group")
	produce(config(), numbers(topic, 20))
	client := got(sarama.NewClient([]string{*bootstrap}, config()))
	defer client.Close()
	manager := got(sarama.NewOffsetManagerFromClient(group, client))
	partition := got(manager.ManagePartition(topic, 0))
	partition.MarkOffset(10, "half way")
	manager.Commit()
	partition.AsyncClose()
	must(manager.Close())
	offsets := got(admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}}))
	block := offsets.GetBlock(topic, 0)
	same(fmt.Sprint(block.Offset, " ", block.Metadata), "10 half way", "committed offset and metadata")
	reader := join(topic, group, config())
	until("the rest", func() bool { return len(reader.read()) >= 10 })
	same(reader.read(), upTo(20)[10:], "values after resuming")
	reader.leave()
	return ""
}

func seekEnds() string {
	topic := newTopic("seek", 1, nil)
	produce(config(), numbers(topic, 10))
	client := got(sarama.NewClient([]string{*bootstrap}, config()))
	defer client.Close()
	same(got(client.GetOffset(topic, 0, sarama.OffsetOldest)), int64(0), "earliest")
	same(got(client.GetOffset(topic, 0, sarama.OffsetNewest)), int64(10), "latest")
	same(readTopic(topic, 1, 1, 5)[0].Offset, int64(5), "offset")
	return ""
}

func seekTimestamp() string {
	topic := newTopic("times", 1, anyTime)
	for i := range 10 {
		message := numbers(topic, 1)
		message[0].Timestamp = time.UnixMilli(t0 + 1000*int64(i))
		produce(config(), message)
	}
	client := got(sarama.NewClient([]string{*bootstrap}, config()))
	defer client.Close()
	for after, expected := range map[int64]int64{0: 0, 2500: 3, 9000: 9} {
		same(got(client.GetOffset(topic, 0, t0+after)), expected, "offset by time")
	}
	return ""
}

// ---- administration ----

func partitionsOf(topic string) int {
	return len(got(admin.DescribeTopics([]string{topic}))[0].Partitions)
}

func listed(topic string) bool { _, there := got(admin.ListTopics())[topic]; return there }

func topics() string {
	topic := newTopic("topics", 3, nil)
	until("the topic to be listed", func() bool { return listed(topic) })
	same(partitionsOf(topic), 3, "partitions")
	must(admin.DeleteTopic(topic))
	until("the topic to be gone", func() bool { return !listed(topic) })
	return ""
}

func partitions() string {
	topic := newTopic("partitions", 2, nil)
	must(admin.CreatePartitions(topic, 5, nil, false))
	until("five partitions", func() bool { return partitionsOf(topic) == 5 })
	return ""
}

func setting(topic, name string) string {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}}
	return got(admin.DescribeConfig(resource))[0].Value
}

func configsDescribe() string {
	topic := newTopic("configs", 1, map[string]string{"retention.ms": "12345678"})
	same(setting(topic, "retention.ms"), "12345678", "retention.ms")
	same(setting(topic, "cleanup.policy"), "delete", "cleanup.policy")
	return ""
}

func configsAlter() string {
	topic, value := newTopic("alter", 1, nil), "7654321"
	must(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &value}, false))
	until("the new value", func() bool { return setting(topic, "retention.ms") == value })
	gone := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationDelete}}
	must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, gone, false))
	until("the default again", func() bool { return setting(topic, "retention.ms") == "604800000" })
	return ""
}

func groups() string {
	topic, group := newTopic("groups", 1, nil), fresh("group")
	reader := join(topic, group, config())
	until("the assignment", func() bool { return reader.owns() == 1 })
	_, there := got(admin.ListConsumerGroups())[group]
	same(there, true, "the group is listed")
	described := got(admin.DescribeConsumerGroups([]string{group}))[0]
	same(fmt.Sprint(described.State, len(described.Members)), "Stable1", "state and members")
	reader.leave()
	return ""
}

func groupsDelete() string {
	topic, group := newTopic("groups", 1, nil), fresh("group")
	got(admin.AlterConsumerGroupOffsets(group, map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 0, LeaderEpoch: -1}}}, nil))
	must(admin.DeleteConsumerGroupOffset(group, topic, 0))
	must(admin.DeleteConsumerGroup(group))
	same(errors.Is(admin.DeleteConsumerGroup(group), sarama.ErrGroupIDNotFound), true, "deleting it again is GROUP_ID_NOT_FOUND")
	return ""
}

func retention() string {
	text := func(value string) map[string]string {
		return map[string]string{"segment.bytes": "1048576", "retention.bytes": value}
	}
	sized, kept := newTopic("size", 1, text("1048576")), newTopic("kept", 1, text("-1"))
	aged := newTopic("age", 1, map[string]string{"retention.ms": "3000", "segment.ms": "1000"})
	for _, topic := range []string{sized, aged, kept} {
		var sent []*sarama.ProducerMessage
		for range 8000 {
			sent = append(sent, &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(make([]byte, 500))})
		}
		produce(config(), sent)
	}
	client := got(sarama.NewClient([]string{*bootstrap}, config()))
	defer client.Close()
	first := func(topic string) int64 { return got(client.GetOffset(topic, 0, sarama.OffsetOldest)) }
	until("what is too old and too much to be gone", func() bool {
		produce(config(), numbers(aged, 1)) // what is written last is never too old
		time.Sleep(500 * time.Millisecond)
		return first(aged) >= 8000 && first(sized) > 0
	})
	same([2]any{first(kept), first(sized) <= 8000-1500}, [2]any{int64(0), true}, "what is to be kept")
	return ""
}

func deleteRecords() string {
	topic := newTopic("delete-records", 1, nil)
	for range 5 {
		produce(config(), numbers(topic, 1))
	}
	must(admin.DeleteRecords(topic, map[int32]int64{0: 2}))
	same(readTopic(topic, 3, 1, sarama.OffsetOldest)[0].Offset, int64(2), "first offset left")
	return ""
}

func cluster() string {
	brokers, controller, err := admin.DescribeCluster()
	must(err)
	same(len(brokers) >= 1, true, "brokers")
	return fmt.Sprintf("controller %d", controller)
}

func logDirs() string {
	topic := newTopic("log-dirs", 1, nil)
	produce(config(), numbers(topic, 10))
	brokers, _, err := admin.DescribeCluster()
	must(err)
	var all []int32 // each tells of what it has
	for _, broker := range brokers {
		all = append(all, broker.ID())
	}
	found := fmt.Sprint(got(admin.DescribeLogDirs(all)))
	same(strings.Contains(found, topic), true, "the topic is in a log directory")
	return ""
}

func failures() string {
	topic := newTopic("errors", 2, nil)
	again := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	same(errors.Is(again, sarama.ErrTopicAlreadyExists), true, fmt.Sprint("creating it again: ", again))
	unknown := admin.DeleteTopic(fresh("none"))
	same(errors.Is(unknown, sarama.ErrUnknownTopicOrPartition), true, fmt.Sprint("an unknown topic: ", unknown))
	fewer := admin.CreatePartitions(topic, 1, nil, false)
	same(errors.Is(fewer, sarama.ErrInvalidPartitions), true, fmt.Sprint("fewer partitions: ", fewer))
	return ""
}

var checks = []check{
	{"produce_consume", produceConsume}, {"headers", headers}, {"nulls", nulls},
	{"codec_none", codec(sarama.CompressionNone)}, {"codec_gzip", codec(sarama.CompressionGZIP)},
	{"codec_snappy", codec(sarama.CompressionSnappy)}, {"codec_lz4", codec(sarama.CompressionLZ4)},
	{"codec_zstd", codec(sarama.CompressionZSTD)}, {"timestamps", timestamps}, {"large_message", largeMessage},
	{"acks_0", acks(sarama.NoResponse)}, {"acks_1", acks(sarama.WaitForLocal)}, {"acks_all", acks(sarama.WaitForAll)},
	{"idempotent", idempotent}, {"restart", restart}, {"group_eager", groupEager}, {"commit_resume", commitResume},
	{"seek_ends", seekEnds}, {"seek_timestamp", seekTimestamp}, {"topics", topics}, {"partitions", partitions},
	{"configs_describe", configsDescribe}, {"configs_alter", configsAlter}, {"groups", groups},
	{"groups_delete", groupsDelete}, {"retention", retention}, {"delete_records", deleteRecords}, {"cluster", cluster}, {"log_dirs", logDirs},
	{"errors", failures},
}

// bounded runs one check apart, so that a client that hangs costs one check and not the run.
func bounded(body func() string) (ok bool, detail string) {
	type outcome struct {
		ok     bool
		detail string
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() {
			if problem := recover(); problem != nil {
				done <- outcome{false, fmt.Sprint(problem)}
			}
		}()
		done <- outcome{true, body()}
	}()
	select {
	case end := <-done:
		return end.ok, end.detail
	case <-time.After(150 * time.Second):
		return false, "no end after 150 s"
	}
}

func saramaVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/IBM/sarama" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func main() {
	flag.Func("only", "a check to run; may be repeated", func(name string) error { only = append(only, name); return nil })
	flag.Parse()
	client, err := sarama.NewClusterAdmin([]string{*bootstrap}, config())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	admin = client
	output := json.NewEncoder(os.Stdout)
	for _, each := range checks {
		if len(only) > 0 && !slices.Contains(only, each.name) {
			continue
		}
		if os.Getenv("COMPAT_CONTROL") == "" && slices.Contains([]string{"restart", "retention"}, each.name) {
			continue
		}
		ok, detail := bounded(each.body)
		output.Encode(map[string]any{"client": "Sarama (Go)", "version": saramaVersion(), "check": each.name, "ok": ok, "detail": detail})
	}
}
