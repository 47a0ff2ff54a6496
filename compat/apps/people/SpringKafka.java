// Spring Kafka, exactly once: the container begins a transaction for each batch, and commits offsets in it.

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

public class SpringKafka {
    public static void main(String[] arguments) throws InterruptedException {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2];
        Map<String, Object> writes = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "compression.type", "gzip",
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class));
        DefaultKafkaProducerFactory<String, String> producers = new DefaultKafkaProducerFactory<>(writes);
        producers.setTransactionIdPrefix("doubler-");
        KafkaTemplate<String, String> template = new KafkaTemplate<>(producers);

        Map<String, Object> reads = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", "spring", "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "session.timeout.ms", 10_000,
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
        ContainerProperties properties = new ContainerProperties(source);
        // Without it, the container goes on behind a batch whose transaction was fenced, for it timed out: it is lost.
        properties.setStopContainerWhenFenced(true);
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        properties.setMessageListener((BatchMessageListener<String, String>) records -> {
            for (ConsumerRecord<String, String> record : records) {
                template.send(target, String.format("%-200d", 2 * Long.parseLong(record.value())));
            }
        });
        ConcurrentMessageListenerContainer<String, String> container =
            new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(reads), properties);
        container.setConcurrency(2);
        // A batch whose transaction failed is read again as often as need be; the default gives it up after ten times.
        container.setAfterRollbackProcessor(
            new DefaultAfterRollbackProcessor<>(new FixedBackOff(200, FixedBackOff.UNLIMITED_ATTEMPTS)));
        container.start();
        new CountDownLatch(1).await();
    }
}
