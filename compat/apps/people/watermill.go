// Watermill over Sarama, at least once: a router's handler, whose message is acknowledged when its double was.

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

func main() {
	bootstrap, source, target := os.Args[1], os.Args[2], os.Args[3]
	logger := watermill.NewStdLogger(false, false)

	reads := kafka.DefaultSaramaSubscriberConfig()
	reads.Consumer.Offsets.Initial = sarama.OffsetOldest
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{bootstrap}, ConsumerGroup: "watermill", Unmarshaler: kafka.DefaultMarshaler{},
		OverwriteSaramaConfig: reads, ReconnectRetrySleep: 200 * time.Millisecond, NackResendSleep: 200 * time.Millisecond,
	}, logger)
	check(err)
	writes := kafka.DefaultSaramaSyncPublisherConfig()
	writes.Producer.Compression = sarama.CompressionGZIP
	writes.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: []string{bootstrap}, Marshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: writes,
	}, logger)
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	check(err)
	router.AddMiddleware(middleware.Recoverer)
	router.AddHandler("double", source, subscriber, target, publisher, func(each *message.Message) ([]*message.Message, error) {
		number, err := strconv.Atoi(strings.TrimSpace(string(each.Payload)))
		if err != nil {
			return nil, err
		}
		return message.Messages{message.NewMessage(watermill.NewUUID(), []byte(fmt.Sprintf("%-200d", 2*number)))}, nil
	})
	check(router.Run(context.Background()))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
