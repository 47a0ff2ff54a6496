import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads lines "name version hex" and prints each one as Kafka's own classes read and write it again.
 *
 * java -cp kafka-clients-4.4.0.jar:... tools/RewriteWithKafka.java < tests/wire/golden.txt
 */
public class RewriteWithKafka {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
    };

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            Message message = (Message) messageClass(words[0])
                .getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining())
                throw new IllegalStateException(line + ": " + bytes.remaining() + " bytes are left");
            System.out.println(words[0] + " " + version + " " + HexFormat.of().formatHex(write(message, version)));
        }
    }

    private static Class<?> messageClass(String name) throws ClassNotFoundException {
        for (String pattern : PACKAGES) {
            try {
                return Class.forName(String.format(pattern, name));
            } catch (ClassNotFoundException e) {
                // It is in one of the other packages.
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        return written.array();
    }
}
