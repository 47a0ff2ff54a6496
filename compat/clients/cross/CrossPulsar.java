// Pulsar's Java client for the cross tests. What is asked and answered stands in lines.py.

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;

public class CrossPulsar {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int SHOWN = 1024;
    static final int SECONDS = 30;
    static PulsarClient client;

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] data) { return data == null ? null : Base64.getEncoder().encodeToString(data); }

    static String shown(byte[] data, boolean whole) throws Exception {
        if (data == null || whole || data.length <= SHOWN) return text(data);
        return "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static String place(MessageId id) {
        var parts = (MessageIdAdv) id;
        return parts.getLedgerId() + ":" + parts.getEntryId() + ":" + parts.getBatchIndex();
    }

    static ArrayNode write(JsonNode request) throws Exception {
        boolean batched = request.get("batched").asBoolean(), chunked = request.get("chunked").asBoolean();
        ArrayNode places = JSON.createArrayNode();
        try (var producer = client.newProducer(Schema.BYTES).topic(request.get("topic").asText())
                .compressionType(CompressionType.valueOf(request.get("codec").asText().toUpperCase()))
                .enableBatching(batched).batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS)
                .enableChunking(chunked).blockIfQueueFull(true).create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                var message = producer.newMessage().value(bytes(record.get("value")));
                if (record.path("key_in_base64").asBoolean()) message.keyBytes(bytes(record.get("key")));
                else if (record.hasNonNull("key_bytes")) message.keyBytes(bytes(record.get("key_bytes")));
                else if (record.hasNonNull("key")) message.key(record.get("key").asText());
                if (record.hasNonNull("ordering_key")) message.orderingKey(bytes(record.get("ordering_key")));
                if (record.get("time").asLong() != 0) message.eventTime(record.get("time").asLong());
                record.get("properties").fields().forEachRemaining(p -> message.property(p.getKey(), p.getValue().asText()));
                sent.add(message.sendAsync());
            }
            producer.flush();
            for (var one : sent) places.add(place(one.get(SECONDS, TimeUnit.SECONDS)));
        }
        return places;
    }

    static ArrayNode read(JsonNode request) throws Exception {
        ArrayNode records = JSON.createArrayNode();
        var builder = client.newReader(Schema.BYTES).topic(request.get("topic").asText());
        if (request.get("from").isNull()) {
            builder.startMessageId(MessageId.earliest);
        } else {
            var parts = request.get("from").asText().split(":");
            long ledger = Long.parseLong(parts[0]), entry = Long.parseLong(parts[1]);
            int index = Integer.parseInt(parts[2]);
            builder.startMessageIdInclusive().startMessageId(
                index < 0 ? new MessageIdImpl(ledger, entry, -1) : new BatchMessageIdImpl(ledger, entry, -1, index));
        }
        try (var reader = builder.create()) {
            while (records.size() < request.get("count").asInt()) {
                var message = reader.readNext(SECONDS, TimeUnit.SECONDS);
                if (message == null) throw new TimeoutException("after " + records.size() + " messages");
                records.add(told(message, request.get("whole").asBoolean()));
            }
        }
        return records;
    }

    static ObjectNode told(Message<byte[]> message, boolean whole) throws Exception {
        ObjectNode told = JSON.createObjectNode();
        told.put("key", message.hasKey() ? message.getKey() : null);
        told.put("key_in_base64", message.hasBase64EncodedKey());
        told.put("ordering_key", message.hasOrderingKey() ? text(message.getOrderingKey()) : null);
        told.put("value", shown(message.getValue(), whole)).put("time", message.getEventTime());
        told.put("place", place(message.getMessageId()));
        told.set("properties", JSON.valueToTree(message.getProperties()));
        return told;
    }

    public static void main(String[] arguments) throws Exception {
        client = PulsarClient.builder().serviceUrl(arguments[0]).memoryLimit(64, SizeUnit.MEGA_BYTES).build();
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        out.println(JSON.createObjectNode().put("version", PulsarVersion.getVersion()));
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
        client.shutdown();
    }
}
