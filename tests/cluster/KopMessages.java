// Sends as KoP's coordinators do (CompactedPartitionedTopic.sendAsync): key bytes, a ByteBuffer, an event time; and
// batches in Kafka's format as its partitions' logs write them (KafkaV1EntryFormatter), which have no key.
//   java -cp PULSAR/lib/* KopMessages.java SERVICE_URL < lines of: topic key value (hexadecimal, or a key of -)
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

public class KopMessages {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Map<String, Producer<ByteBuffer>> producers = new HashMap<>();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] parts = line.split(" ");
                ByteBuffer value = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                Producer<ByteBuffer> producer = producers.get(parts[0]);
                if (producer == null) {
                    producer = client.newProducer(Schema.BYTEBUFFER).topic(parts[0]).blockIfQueueFull(true).create();
                    producers.put(parts[0], producer);
                }
                if (parts[1].equals("-")) {
                    producer.flush();
                    try (Producer<ByteBuffer> alone =
                            client.newProducer(Schema.BYTEBUFFER).topic(parts[0]).enableBatching(false).create()) {
                        alone.newMessage().property("entry.format", "kafka").value(value).send();
                    }
                    continue;
                }
                producer.newMessage()
                        .keyBytes(HexFormat.of().parseHex(parts[1]))
                        .value(value)
                        .eventTime(System.currentTimeMillis())
                        .sendAsync();
            }
            for (Producer<ByteBuffer> producer : producers.values()) {
                producer.flush();
                producer.close();
            }
        }
    }
}
