// A Kafka Streams application with all that one has: topics of its own, state, a copy of it elsewhere, a join.
//   WordCount.java BOOTSTRAP APPLICATION_ID STATE_DIRECTORY [GROUP_PROTOCOL [PROCESSING_GUARANTEE]]
// From "words" (value: a word and a number) it counts the different numbers of each word into "counts", and writes each
// record with the word's line of the global table "meanings" to "explained". Numbers that come twice count once, so what
// is processed again after a crash shows nowhere, and what is lost does.

import java.nio.ByteBuffer;
import java.util.BitSet;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;

public class WordCount {
    static String word(String value) { return value.split(" ")[0]; }

    static byte[] with(byte[] seen, String value) {
        var numbers = BitSet.valueOf(ByteBuffer.wrap(seen));
        numbers.set(Integer.parseInt(value.split(" ")[1]));
        return numbers.toByteArray();
    }

    public static void main(String[] arguments) throws Exception {
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        var words = builder.stream("words", Consumed.with(text, text));
        words.selectKey((key, value) -> word(value))
            .groupByKey(Grouped.with("by-word", text, text))
            .aggregate(() -> new byte[0], (word, value, seen) -> with(seen, value),
                Materialized.<String, byte[]>as(org.apache.kafka.streams.state.Stores.persistentKeyValueStore("seen"))
                    .withKeySerde(text).withValueSerde(Serdes.ByteArray()))
            .toStream()
            .mapValues(seen -> "" + BitSet.valueOf(ByteBuffer.wrap(seen)).cardinality())
            .to("counts", Produced.with(text, text));
        var meanings = builder.globalTable("meanings", Consumed.with(text, text));
        words.join(meanings, (key, value) -> word(value), (value, meaning) -> value + ": " + meaning)
            .to("explained", Produced.with(text, text));

        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("num.stream.threads", "2");
        settings.put("commit.interval.ms", "500");
        settings.put("repartition.purge.interval.ms", "1000");
        var protocol = arguments.length > 3 ? arguments[3] : "classic";
        settings.put("group.protocol", protocol);
        if (protocol.equals("classic")) {  // of the streams protocol the broker says all this
            settings.put("num.standby.replicas", "1");
            settings.put("session.timeout.ms", "10000");
            settings.put("heartbeat.interval.ms", "1000");
        }
        if (arguments.length > 4) settings.put("processing.guarantee", arguments[4]);
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }
}
