// Pulsar's Go client for the cross tests. What is asked and answered stands in compat/clients/cross/lines.py.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	shown   = 1024
	patient = 10 * time.Second
)

var codecs = map[string]pulsar.CompressionType{
	"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD, "snappy": pulsar.SNAPPY,
}

type record struct {
	Key         string            `json:"key"`
	OrderingKey []byte            `json:"ordering_key"`
	Value       any               `json:"value"`
	Properties  map[string]string `json:"properties"`
	Time        int64             `json:"time"`
	Place       string            `json:"place"`
}

type request struct {
	Do      string   `json:"do"`
	Topic   string   `json:"topic"`
	Codec   string   `json:"codec"`
	Batched bool     `json:"batched"`
	Chunked bool     `json:"chunked"`
	Records []record `json:"records"`
	From    *string  `json:"from"`
	Count   int      `json:"count"`
	Whole   bool     `json:"whole"`
}

type answer struct {
	Version string   `json:"version,omitempty"`
	Places  []string `json:"places,omitempty"`
	Records []record `json:"records,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func place(id pulsar.MessageID) string {
	return fmt.Sprintf("%d:%d:%d", id.LedgerID(), id.EntryID(), id.BatchIdx())
}

func write(client pulsar.Client, r request) ([]string, error) {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: r.Topic, CompressionType: codecs[r.Codec], DisableBatching: !r.Batched || r.Chunked,
		BatchingMaxPublishDelay: 50 * time.Millisecond, EnableChunking: r.Chunked,
	})
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	places := make([]string, len(r.Records))
	var failed error
	var once sync.Once
	var left sync.WaitGroup
	for i, record := range r.Records {
		value, err := base64.StdEncoding.DecodeString(record.Value.(string))
		if err != nil {
			return nil, err
		}
		message := &pulsar.ProducerMessage{
			Payload: value, Key: record.Key, OrderingKey: string(record.OrderingKey), Properties: record.Properties,
		}
		if record.Time != 0 {
			message.EventTime = time.UnixMilli(record.Time)
		}
		left.Add(1)
		producer.SendAsync(context.Background(), message, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			defer left.Done()
			if err != nil {
				once.Do(func() { failed = err })
				return
			}
			places[i] = place(id)
		})
	}
	if err := producer.FlushWithCtx(context.Background()); err != nil {
		return nil, err
	}
	left.Wait()
	return places, failed
}

func read(client pulsar.Client, r request) ([]record, error) {
	options := pulsar.ReaderOptions{Topic: r.Topic, StartMessageID: pulsar.EarliestMessageID()}
	if r.From != nil {
		var ledger, entry int64
		var index int32
		if _, err := fmt.Sscanf(*r.From, "%d:%d:%d", &ledger, &entry, &index); err != nil {
			return nil, err
		}
		options.StartMessageID, options.StartMessageIDInclusive = pulsar.NewMessageID(ledger, entry, index, -1), true
	}
	reader, err := client.CreateReader(options)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var records []record
	for range r.Count {
		within, cancel := context.WithTimeout(context.Background(), patient)
		message, err := reader.Next(within)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("after %d messages: %w", len(records), err)
		}
		records = append(records, told(message, r.Whole))
	}
	return records, nil
}

func told(message pulsar.Message, whole bool) record {
	value := base64.StdEncoding.EncodeToString(message.Payload())
	if len(message.Payload()) > shown && !whole {
		sum := sha256.Sum256(message.Payload())
		value = "sha256:" + hex.EncodeToString(sum[:])
	}
	properties := message.Properties()
	if properties == nil {
		properties = map[string]string{}
	}
	told := record{
		Key: message.Key(), OrderingKey: []byte(message.OrderingKey()), Value: value, Properties: properties,
		Place: place(message.ID()),
	}
	if at := message.EventTime(); at.Unix() > 0 || at.Nanosecond() > 0 && at.Unix() == 0 {
		told.Time = at.UnixMilli()
	}
	return told
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if strings.HasSuffix(module.Path, "pulsar-client-go") {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return ""
}

func main() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: log.NewLoggerWithLogrus(quiet)})
	if err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(answer{Version: version()})
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		var a answer
		if err = json.Unmarshal(line, &r); err == nil {
			if r.Do == "write" {
				a.Places, err = write(client, r)
			} else {
				a.Records, err = read(client, r)
			}
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		_ = out.Encode(a)
	}
}
