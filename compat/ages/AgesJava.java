// Kafka's Java client of any version from 0.11 on: compiled against the oldest, so that what users' own jars do is done.
// It takes a command a line, as ages/program.py says, and answers each with a line of JSON.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

public class AgesJava {
    static String bootstrap;
    static long t0;
    static final Map<String, KafkaProducer<String, String>> TRANSACTIONAL = new HashMap<>();

    static Properties settings(String... pairs) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("request.timeout.ms", "30000");
        all.put("metadata.max.age.ms", "1000");
        for (String side : new String[] {"key", "value"}) {
            all.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            all.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }

    static String value(int number) {
        StringBuilder text = new StringBuilder(String.format("%05d ", number));
        for (int i = 0; i < 4; i++) text.append("a line that repeats itself ");
        return text.toString();
    }

    static void send(KafkaProducer<String, String> producer, String topic, int first, int end) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = first; i < end; i++) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, t0 + i, "key-" + i % 10, value(i));
            record.headers().add("n", Integer.toString(i).getBytes());
            sent.add(producer.send(record));
        }
        for (Future<RecordMetadata> each : sent) each.get();
    }

    static String create(String topic) throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            admin.createTopics(Collections.singletonList(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        return "{}";
    }

    static String produce(String topic, String codec, int first, int end, boolean idempotent) throws Exception {
        Properties wanted = settings("compression.type", codec, "linger.ms", "20", "acks", "all",
            "enable.idempotence", Boolean.toString(idempotent));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(wanted)) {
            send(producer, topic, first, end);
        }
        return "{}";
    }

    static String transaction(String topic, String id, int first, int end, boolean commits) throws Exception {
        KafkaProducer<String, String> producer = TRANSACTIONAL.get(id);
        if (producer == null) {
            producer = new KafkaProducer<>(settings("transactional.id", id, "enable.idempotence", "true", "linger.ms", "20"));
            producer.initTransactions();
            TRANSACTIONAL.put(id, producer);
        }
        producer.beginTransaction();
        send(producer, topic, first, end);
        if (commits) producer.commitTransaction(); else producer.abortTransaction();
        return "{}";
    }

    /** poll(long) is gone in 4.0 and poll(Duration) came in 2.0. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            Method poll = KafkaConsumer.class.getMethod("poll", duration);
            return (ConsumerRecords<String, String>) poll.invoke(consumer, duration.getMethod("ofMillis", long.class).invoke(null, 200L));
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
    }

    static String read(String topic, String group, int count, String isolation) throws Exception {
        List<String> numbers = new ArrayList<>();
        Properties wanted = settings("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "isolation.level", isolation, "max.poll.records", Integer.toString(Math.min(count, 500)));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(wanted)) {
            consumer.subscribe(Collections.singletonList(topic));
            while (numbers.size() < count) {
                for (ConsumerRecord<String, String> record : poll(consumer)) numbers.add(Integer.toString(Integer.parseInt(record.value().substring(0, 5))));
            }
            consumer.commitSync();
        }
        return "{\"numbers\": " + numbers + "}";
    }

    /** committed(TopicPartition) is gone in 4.0 and committed(Set) came in 2.4. */
    @SuppressWarnings("unchecked")
    static String committed(String topic, String group) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings("group.id", group))) {
            OffsetAndMetadata found;
            try {
                found = (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, partition);
            } catch (NoSuchMethodException gone) {
                Method those = KafkaConsumer.class.getMethod("committed", java.util.Set.class);
                found = ((Map<TopicPartition, OffsetAndMetadata>) those.invoke(consumer, Collections.singleton(partition))).get(partition);
            }
            return "{\"offset\": " + found.offset() + "}";
        }
    }

    static String time(String topic, long at) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings("group.id", "unused"))) {
            return "{\"offset\": " + consumer.offsetsForTimes(Collections.singletonMap(partition, at)).get(partition).offset() + "}";
        }
    }

    static String answer(String[] words) throws Exception {
        String topic = words[1];
        switch (words[0]) {
            case "create": return create(topic);
            case "produce": return produce(topic, words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]), words[5].equals("idempotent"));
            case "transaction": return transaction(topic, words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]), words[5].equals("commit"));
            case "read": return read(topic, words[2], Integer.parseInt(words[3]), words[4]);
            case "committed": return committed(topic, words[2]);
            default: return time(topic, Long.parseLong(words[2]));
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        t0 = Long.parseLong(arguments[1]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                System.out.println(answer(line.split(" ")));
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause.getCause() != null) cause = cause.getCause();
                System.out.println("{\"error\": \"" + cause.toString().replaceAll("[\\x00-\\x1f\"\\\\]", " ") + "\"}");
            }
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);  // producers that are still open need not end in order
    }
}
