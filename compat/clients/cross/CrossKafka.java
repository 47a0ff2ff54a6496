// Kafka's own Java client for the cross tests. What is asked and answered stands in lines.py.

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class CrossKafka {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int SHOWN = 1024;
    static final long SECONDS = 30;
    static String bootstrap;

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] data) { return data == null ? null : Base64.getEncoder().encodeToString(data); }

    static String shown(byte[] data, boolean whole) throws Exception {
        if (data == null || whole || data.length <= SHOWN) return text(data);
        return "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static ArrayNode write(JsonNode request) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap,
            "compression.type", request.get("codec").asText(), "linger.ms", request.get("batched").asBoolean() ? 50 : 0,
            "batch.size", request.get("batched").asBoolean() ? 16384 : 0);
        ArrayNode places = JSON.createArrayNode();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                var one = new ProducerRecord<>(request.get("topic").asText(), 0, record.get("time").asLong(),
                    bytes(record.get("key")), bytes(record.get("value")));
                for (JsonNode header : record.get("headers"))
                    one.headers().add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                sent.add(producer.send(one));
            }
            producer.flush();
            for (var one : sent) places.add(one.get(SECONDS, TimeUnit.SECONDS).offset());
        }
        return places;
    }

    static ArrayNode read(JsonNode request) throws Exception {
        ArrayNode records = JSON.createArrayNode();
        var partition = new TopicPartition(request.get("topic").asText(), 0);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            if (request.get("from").isNull()) consumer.seekToBeginning(List.of(partition));
            else consumer.seek(partition, request.get("from").asLong());
            long end = System.nanoTime() + SECONDS * 1_000_000_000L;
            while (records.size() < request.get("count").asInt()) {
                if (System.nanoTime() > end) throw new TimeoutException("after " + records.size() + " records");
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    ObjectNode told = JSON.createObjectNode();
                    told.put("key", text(record.key())).put("value", shown(record.value(), request.get("whole").asBoolean()));
                    told.put("time", record.timestamp()).put("place", record.offset());
                    ArrayNode headers = told.putArray("headers");
                    for (var header : record.headers()) headers.addArray().add(header.key()).add(text(header.value()));
                    if (records.size() < request.get("count").asInt()) records.add(told);
                }
            }
        }
        return records;
    }

    /** The client's own word for its version: the class that tells it moves from release to release. */
    static String clientVersion() {
        var told = new Properties();
        try (var file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            told.load(file);
        } catch (IOException | NullPointerException unknown) {
            return "unknown";
        }
        return told.getProperty("version");
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        out.println(JSON.createObjectNode().put("version", clientVersion()));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                if (request.get("do").asText().equals("write")) answer.set("places", write(request));
                else answer.set("records", read(request));
            } catch (Exception error) {
                answer = JSON.createObjectNode().put("error", error.toString());
            }
            out.println(answer);
        }
    }
}
