// Kafka's own Java client. Run by compat/kafka-tools.sh as a single-file program: nothing to build.

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class JavaClient {
    interface Check { String run() throws Exception; }
    interface Call { void run() throws Exception; }
    record KeyValue(byte[] key, byte[] value) {}

    static final int VOLUME = 20_000, PARTITIONS = 12;  // with a handful of records a broker may lose most and pass
    static final long T0 = 1_700_000_000_000L;
    static final Map<String, String> ANY_TIME = Map.of("message.timestamp.before.max.ms", "9223372036854775807", "retention.ms", "-1");
    static String bootstrap;
    static Admin admin;

    // ---- help ----

    static String fresh(String prefix) {
        return "compat-" + prefix + "-" + UUID.randomUUID().toString().substring(0, 10);
    }

    static byte[] bytes(String text) { return text == null ? null : text.getBytes(); }

    static String text(byte[] value) { return value == null ? null : new String(value); }

    static void same(Object got, Object expected, String what) {
        if (!Objects.equals(got, expected)) throw new AssertionError(what + ": got " + got + ", expected " + expected);
    }

    static void until(String what, BooleanSupplier ready) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!ready.getAsBoolean()) {
            if (System.nanoTime() > end) throw new TimeoutException("waited 60 s for " + what);
            Thread.sleep(20);
        }
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        try {
            return future.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw (Exception) error.getCause();
        }
    }

    static <T> T quietly(Callable<T> call) {
        try { return call.call(); } catch (Exception error) { throw new RuntimeException(error); }
    }

    static String raised(Call call) throws Exception {
        try { call.run(); } catch (ApiException error) { return error.getClass().getSimpleName(); }
        return "none";
    }

    static String newTopic(String prefix, int partitions, Map<String, String> config) throws Exception {
        String name = fresh(prefix);
        get(admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(config))).all());
        return name;
    }

    static String newTopic(String prefix) throws Exception { return newTopic(prefix, 1, Map.of()); }

    static List<RecordMetadata> produce(Map<String, Object> config, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        settings.putAll(config);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            var futures = records.stream().map(producer::send).toList();
            producer.flush();
            List<RecordMetadata> answers = new ArrayList<>();
            for (var future : futures) answers.add(future.get(30, TimeUnit.SECONDS));
            return answers;
        }
    }

    static List<ProducerRecord<byte[], byte[]>> numbers(String topic, int count) {
        return IntStream.range(0, count).mapToObj(i -> new ProducerRecord<>(topic, bytes("" + i), bytes("" + i))).toList();
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group, Map<String, Object> config) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "heartbeat.interval.ms", 300, "session.timeout.ms", 10000));
        if (group != null) settings.put("group.id", group);
        settings.putAll(config);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> read(Consumer<byte[], byte[]> source, int count) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        until(count + " records", () -> {
            source.poll(Duration.ofMillis(200)).forEach(got::add);
            return got.size() >= count;
        });
        return got;
    }

    static List<ConsumerRecord<byte[], byte[]>> readTopic(String topic, int count, int partitions) throws Exception {
        try (var source = consumer(null, Map.of())) {
            source.assign(IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList());
            return read(source, count);
        }
    }

    /** What ``complete`` looks for. */
    static List<ProducerRecord<byte[], byte[]>> numbered(String topic, String name, int count) {
        return IntStream.range(0, count).mapToObj(i -> new ProducerRecord<byte[], byte[]>(topic, bytes(name + " " + i))).toList();
    }

    /** Each producer's numbered values are all there, once, and within a partition in the order in which they were sent. */
    static void complete(List<ConsumerRecord<byte[], byte[]>> got, Map<String, Integer> sent) {
        Map<String, List<Integer>> byName = new HashMap<>(), byPlace = new HashMap<>();
        for (var record : got) {
            String[] parts = text(record.value()).split(" ");
            byName.computeIfAbsent(parts[0], n -> new ArrayList<>()).add(Integer.parseInt(parts[1]));
            byPlace.computeIfAbsent(parts[0] + " in " + record.partition(), n -> new ArrayList<>()).add(Integer.parseInt(parts[1]));
        }
        for (var each : sent.entrySet()) {
            List<Integer> found = byName.getOrDefault(each.getKey(), List.of());
            int distinct = new HashSet<>(found).size();
            same(List.of(each.getValue() - distinct, found.size() - distinct), List.of(0, 0), "records of " + each.getKey() + " that are missing, and that are there twice");
        }
        byPlace.forEach((place, numbers) -> same(numbers.stream().sorted().toList(), numbers, "the order of " + place));
    }

    /** Have the runner do something: restart the broker, or tell how many answers were lost. */
    static String control(String asked) throws Exception {
        String[] address = System.getenv("COMPAT_CONTROL").split(":");
        try (var socket = new java.net.Socket(address[0], Integer.parseInt(address[1]))) {
            socket.getOutputStream().write(bytes(asked + "\n"));
            return new java.io.BufferedReader(new java.io.InputStreamReader(socket.getInputStream())).readLine();
        }
    }

    // ---- records ----

    static String produceConsume() throws Exception {
        String topic = newTopic("basic", PARTITIONS, Map.of());
        var sent = IntStream.range(0, VOLUME).mapToObj(i -> new ProducerRecord<>(topic, bytes("key-" + i % 50), bytes("" + i))).toList();
        produce(Map.of(), sent);
        var got = readTopic(topic, VOLUME, PARTITIONS);
        for (int k = 0; k < 50; k++) {
            String key = "key-" + k;
            same(got.stream().filter(r -> text(r.key()).equals(key)).map(r -> text(r.value())).toList(),
                sent.stream().filter(r -> text(r.key()).equals(key)).map(r -> text(r.value())).toList(), key);
        }
        return got.stream().map(ConsumerRecord::partition).distinct().count() + " partitions";
    }

    static String headers() throws Exception {
        String topic = newTopic("headers");
        byte[] binary = new byte[256];
        for (int i = 0; i < 256; i++) binary[i] = (byte) i;
        List<Header> given = List.of(new RecordHeader("trace", bytes("one")), new RecordHeader("trace", bytes("two")),
            new RecordHeader("empty", new byte[0]), new RecordHeader("binary", binary), new RecordHeader("none", (byte[]) null));
        produce(Map.of(), List.of(new ProducerRecord<>(topic, null, bytes("k"), bytes("v"), given)));
        same(List.of(readTopic(topic, 1, 1).get(0).headers().toArray()), given, "headers");
        return "";
    }

    static String nulls() throws Exception {
        String topic = newTopic("nulls");
        String[][] pairs = {{null, "no key"}, {"tombstone", null}, {null, null}, {"", "empty key"}, {"empty value", ""}};
        produce(Map.of(), Arrays.stream(pairs).map(p -> new ProducerRecord<>(topic, bytes(p[0]), bytes(p[1]))).toList());
        same(readTopic(topic, 5, 1).stream().map(r -> Arrays.asList(text(r.key()), text(r.value()))).toList(),
            Arrays.stream(pairs).map(Arrays::asList).toList(), "keys and values");
        return "";
    }

    static String codec(String name) throws Exception {
        String topic = newTopic(name);
        String line = " a line that repeats itself".repeat(8);
        var sent = IntStream.range(0, VOLUME).mapToObj(i -> new ProducerRecord<byte[], byte[]>(topic, bytes(i + line))).toList();
        produce(Map.of("compression.type", name, "linger.ms", 50), sent);
        same(readTopic(topic, VOLUME, 1).stream().map(r -> text(r.value())).toList(), sent.stream().map(r -> text(r.value())).toList(), "values");
        return "";
    }

    static String timestamps() throws Exception {
        String topic = newTopic("timestamps", 1, ANY_TIME);
        produce(Map.of(), IntStream.range(0, 10).mapToObj(i -> new ProducerRecord<byte[], byte[]>(topic, 0, T0 + i, null, bytes("x"))).toList());
        same(readTopic(topic, 10, 1).stream().map(ConsumerRecord::timestamp).toList(),
            LongStream.range(T0, T0 + 10).boxed().toList(), "timestamps");
        String stamped = newTopic("stamped", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        produce(Map.of(), List.of(new ProducerRecord<>(stamped, 0, T0, null, bytes("x"))));
        var record = readTopic(stamped, 1, 1).get(0);
        same(record.timestampType().toString(), "LogAppendTime", "timestamp type");
        same(record.timestamp() >= before - 1000, true, "the broker's own timestamp");
        return "CreateTime and LogAppendTime";
    }

    static String largeMessage() throws Exception {
        String topic = newTopic("large");
        byte[] large = new byte[900_000];
        new Random(1).nextBytes(large);
        produce(Map.of(), List.of(new ProducerRecord<>(topic, large)));
        same(Arrays.equals(readTopic(topic, 1, 1).get(0).value(), large), true, "the large value is equal");
        return "";
    }

    static String acks(String name) throws Exception {
        String topic = newTopic("acks-" + name, PARTITIONS, Map.of());
        Thread.sleep(2000);  // with acks=0 nobody tells that a partition has no leader yet
        Map<String, Map<String, Object>> ways = Map.of("big", Map.of("linger.ms", 20), "single", Map.of("linger.ms", 0, "batch.size", 0));
        List<Future<List<RecordMetadata>>> sent = new ArrayList<>();
        try (var threads = new AutoCloseablePool()) {
            for (var way : ways.entrySet()) {
                Map<String, Object> config = new HashMap<>(way.getValue());
                config.putAll(Map.of("acks", name, "enable.idempotence", false, "max.in.flight.requests.per.connection", 1));
                sent.add(threads.pool.submit(() -> produce(config, numbered(topic, way.getKey(), VOLUME / 2))));
            }
        }
        var got = readTopic(topic, VOLUME, PARTITIONS);
        complete(got, Map.of("big", VOLUME / 2, "single", VOLUME / 2));
        List<String> told = new ArrayList<>();
        for (var each : sent) for (var answer : each.get()) told.add(answer.partition() + "@" + answer.offset());
        if (!name.equals("0")) same(told.stream().sorted().toList(), got.stream().map(r -> r.partition() + "@" + r.offset()).sorted().toList(), "offsets");
        return "";
    }

    /** Threads that have ended when it is closed. */
    static class AutoCloseablePool implements AutoCloseable {
        final ExecutorService pool = Executors.newCachedThreadPool();

        @Override public void close() throws InterruptedException {
            pool.shutdown();
            pool.awaitTermination(60, TimeUnit.SECONDS);
        }
    }

    static String idempotent() throws Exception {
        String topic = newTopic("idempotent");
        var answers = produce(Map.of("enable.idempotence", true, "batch.size", 512), numbers(topic, VOLUME));
        same(answers.stream().map(RecordMetadata::offset).toList(), LongStream.range(0, VOLUME).boxed().toList(), "offsets");
        same(readTopic(topic, VOLUME, 1).stream().map(r -> text(r.value())).toList(), IntStream.range(0, VOLUME).mapToObj(i -> "" + i).toList(), "values");
        return "";
    }

    static String sentTwice() throws Exception {
        String topic = newTopic("twice", 3, Map.of());
        int before = Integer.parseInt(control("lost"));
        produce(Map.of("bootstrap.servers", System.getenv("COMPAT_LOSSY"), "enable.idempotence", true, "batch.size", 512, "retry.backoff.ms", 20,
            "reconnect.backoff.ms", 10), numbered(topic, "idempotent", 4000));
        int lost = Integer.parseInt(control("lost")) - before;
        complete(readTopic(topic, 4000, 3), Map.of("idempotent", 4000));
        var asked = IntStream.range(0, 3).boxed().collect(Collectors.toMap(p -> new TopicPartition(topic, p), p -> OffsetSpec.latest()));
        long all = get(admin.listOffsets(asked).all()).values().stream().mapToLong(o -> o.offset()).sum();
        same(List.of(all, lost >= 5), List.of(4000L, true), "records in all, and that answers were lost (" + lost + ")");
        return lost + " answers lost";
    }

    static String restart() throws Exception {
        String topic = newTopic("restart", PARTITIONS, Map.of()), group = fresh("group");
        var records = numbered(topic, "restart", VOLUME / 2);
        Map<TopicPartition, OffsetAndMetadata> committed;
        try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", bootstrap), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (var future : records.subList(0, 5000).stream().map(producer::send).toList()) future.get(30, TimeUnit.SECONDS);
            try (var member = consumer(group, Map.of())) {
                member.subscribe(List.of(topic));
                read(member, 5000);
                member.commitSync();
                committed = member.committed(member.assignment());
            }
            control("restart");
            for (var future : records.subList(5000, VOLUME / 2).stream().map(producer::send).toList()) future.get(60, TimeUnit.SECONDS);
        }
        try (var again = consumer(group, Map.of())) {
            same(again.committed(committed.keySet()), committed, "committed offsets after the restart");
            again.subscribe(List.of(topic));
            var rest = read(again, VOLUME / 2 - 5000).stream().map(r -> text(r.value())).sorted().toList();
            same(rest, records.subList(5000, VOLUME / 2).stream().map(r -> text(r.value())).sorted().toList(), "what the group reads after the restart");
        }
        complete(readTopic(topic, VOLUME / 2, PARTITIONS), Map.of("restart", VOLUME / 2));
        return "";
    }

    // ---- groups ----

    /** One member that polls in a thread of its own and remembers what it was given and what was taken. */
    static class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> source;
        final Set<TopicPartition> owned = ConcurrentHashMap.newKeySet();
        final List<Integer> revoked = new CopyOnWriteArrayList<>();
        final List<Integer> seen = Collections.synchronizedList(new ArrayList<>());
        volatile boolean leaving;

        Member(String topic, String group, Map<String, Object> config) {
            source = consumer(group, config);
            source.subscribe(List.of(topic), this);
            setDaemon(true);
            start();
        }

        @Override public void run() {
            while (!leaving) source.poll(Duration.ofMillis(100)).forEach(r -> seen.add(Integer.parseInt(text(r.value()))));
            source.close();
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> added) { owned.addAll(added); }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> gone) {
            if (!gone.isEmpty() && !leaving) revoked.add(gone.size());
            owned.removeAll(gone);
        }

        void leave() throws InterruptedException {
            leaving = true;
            join(20000);
        }
    }

    static String twoMembers(Map<String, Object> config, int expectedRevoked) throws Exception {
        String topic = newTopic("group", 4, Map.of()), group = fresh("group");
        Member first = new Member(topic, group, config);
        until("the first member to own everything", () -> first.owned.size() == 4);
        Member second = new Member(topic, group, config);
        until("both to own two partitions", () -> first.owned.size() == 2 && second.owned.size() == 2);
        same(first.revoked, List.of(expectedRevoked), "partitions taken from the first member");
        produce(Map.of(), numbers(topic, VOLUME));
        until("all records", () -> first.seen.size() + second.seen.size() >= VOLUME);
        same(Stream.concat(first.seen.stream(), second.seen.stream()).sorted().toList(), IntStream.range(0, VOLUME).boxed().toList(), "records");
        second.leave();
        until("the first member to own everything again", () -> first.owned.size() == 4);
        first.leave();
        return "4, then 2 + 2, then 4; " + expectedRevoked + " revoked";
    }

    static String groupEager() throws Exception {
        return twoMembers(Map.of("partition.assignment.strategy", RangeAssignor.class.getName()), 4);
    }

    static String groupCooperative() throws Exception {
        return twoMembers(Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName()), 2);
    }

    static String groupStatic() throws Exception {
        String topic = newTopic("static", 4, Map.of()), group = fresh("group");
        Map<String, Object> a = Map.of("group.instance.id", "a", "session.timeout.ms", 30000);
        Map<String, Object> b = Map.of("group.instance.id", "b", "session.timeout.ms", 30000);
        Member first = new Member(topic, group, a), second = new Member(topic, group, b);
        until("both to own two partitions", () -> first.owned.size() == 2 && second.owned.size() == 2);
        first.revoked.clear();
        second.leave();
        Member again = new Member(topic, group, b);
        until("the second member to be back", () -> again.owned.size() == 2);
        same(first.revoked, List.of(), "partitions taken from the first member meanwhile");
        var instances = get(admin.describeConsumerGroups(List.of(group)).all()).get(group).members().stream().map(m -> m.groupInstanceId().get()).sorted().toList();
        same(instances, List.of("a", "b"), "static members");
        first.leave();
        again.leave();
        get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(
            List.of(new MemberToRemove("a"), new MemberToRemove("b")))).all());
        return "";
    }

    static String fenced() throws Exception {
        String topic = newTopic("fenced", 4, Map.of()), group = fresh("group");
        Map<String, Object> config = Map.of("group.instance.id", "one", "session.timeout.ms", 30000);
        try (var first = consumer(group, config); var second = consumer(group, config)) {
            first.subscribe(List.of(topic));
            until("the first to own everything", () -> { first.poll(Duration.ofMillis(100)); return first.assignment().size() == 4; });
            second.subscribe(List.of(topic));
            List<String> told = new ArrayList<>();
            until("the first to be fenced, and the second to own everything", () -> {
                second.poll(Duration.ofMillis(100));
                if (told.isEmpty()) try { first.poll(Duration.ofMillis(100)); } catch (ApiException error) { told.add(error.getClass().getSimpleName()); }
                return !told.isEmpty() && second.assignment().size() == 4;
            });
            same(told, List.of("FencedInstanceIdException"), "what the first is told");
            var moved = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
            same(raised(() -> get(admin.alterConsumerGroupOffsets(group, moved).all())), "UnknownMemberIdException", "changing offsets of a group at work");
        }
        return "";
    }

    static String commitResume() throws Exception {
        String topic = newTopic("commit"), group = fresh("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(Map.of(), numbers(topic, 20));
        try (var first = consumer(group, Map.of("max.poll.records", 10))) {
            first.subscribe(List.of(topic));
            var epoch = read(first, 10).get(9).leaderEpoch();  // of a cluster's new topic it need not be 0
            first.commitSync(Map.of(partition, new OffsetAndMetadata(10, epoch, "half way")));
        }
        try (var second = consumer(group, Map.of())) {
            var found = second.committed(Set.of(partition)).get(partition);
            same(found.offset() + " " + found.metadata(), "10 half way", "committed offset and metadata");
            second.subscribe(List.of(topic));
            same(read(second, 10).stream().map(ConsumerRecord::offset).toList(), LongStream.range(10, 20).boxed().toList(), "offsets");
        }
        return "";
    }

    static String seekEnds() throws Exception {
        String topic = newTopic("seek");
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(Map.of(), numbers(topic, 10));
        try (var source = consumer(null, Map.of("max.poll.records", 1))) {
            source.assign(List.of(partition));
            same(source.beginningOffsets(List.of(partition)).get(partition), 0L, "beginning");
            same(source.endOffsets(List.of(partition)).get(partition), 10L, "end");
            source.seek(partition, 5);
            same(read(source, 1).get(0).offset(), 5L, "offset");
            source.seekToBeginning(List.of(partition));
            same(read(source, 1).get(0).offset(), 0L, "earliest offset");
            source.seekToEnd(List.of(partition));
            same(source.position(partition), 10L, "latest position");
            produce(Map.of(), numbers(topic, 1));
            same(read(source, 1).get(0).offset(), 10L, "latest offset");
        }
        return "";
    }

    static String seekTimestamp() throws Exception {
        String topic = newTopic("times", 1, ANY_TIME);
        TopicPartition partition = new TopicPartition(topic, 0);
        for (int i = 0; i < 10; i++) produce(Map.of(), List.of(new ProducerRecord<>(topic, 0, T0 + 1000L * i, null, bytes("x"))));
        try (var source = consumer(null, Map.of())) {
            for (long[] pair : new long[][] {{0, 0}, {2500, 3}, {9000, 9}})
                same(source.offsetsForTimes(Map.of(partition, T0 + pair[0])).get(partition).offset(), pair[1], "offset at " + pair[0]);
            same(source.offsetsForTimes(Map.of(partition, T0 + 99000)).get(partition), null, "offset after the last timestamp");
        }
        for (var pair : Map.of(OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 10L, OffsetSpec.maxTimestamp(), 9L).entrySet())
            same(get(admin.listOffsets(Map.of(partition, pair.getKey())).all()).get(partition).offset(), pair.getValue(), pair.getKey().getClass().getSimpleName());
        return "";
    }

    // ---- administration ----

    static TopicDescription describe(String topic) throws Exception {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    static String topics() throws Exception {
        String name = newTopic("topics", 3, Map.of());
        until("the topic to be listed", () -> quietly(() -> get(admin.listTopics().names()).contains(name)));
        same(describe(name).partitions().size(), 3, "partitions");
        Uuid id = describe(name).topicId();
        same(get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id).name(), name, "name by topic id");
        get(admin.deleteTopics(List.of(name)).all());
        until("the topic to be gone", () -> quietly(() -> !get(admin.listTopics().names()).contains(name)));
        return "by name and by id";
    }

    static String partitions() throws Exception {
        String name = newTopic("partitions", 2, Map.of());
        get(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all());
        until("five partitions", () -> quietly(() -> describe(name).partitions().size() == 5));
        return "";
    }

    static Config settings(ConfigResource.Type type, String name) throws Exception {
        ConfigResource resource = new ConfigResource(type, name);
        return get(admin.describeConfigs(List.of(resource)).all()).get(resource);
    }

    static String configsDescribe() throws Exception {
        String name = newTopic("configs", 1, Map.of("retention.ms", "12345678"));
        Config topic = settings(ConfigResource.Type.TOPIC, name);
        same(topic.get("retention.ms").value(), "12345678", "retention.ms");
        same(topic.get("retention.ms").source().toString(), "DYNAMIC_TOPIC_CONFIG", "its source");
        same(topic.get("cleanup.policy").value(), "delete", "cleanup.policy");
        same(topic.get("cleanup.policy").isDefault(), true, "cleanup.policy is a default");
        Set<String> known = topic.entries().stream().map(ConfigEntry::name).collect(Collectors.toSet());
        List<String> missing = Arrays.stream(TopicConfig.class.getFields()).filter(f -> f.getName().endsWith("_CONFIG"))
            .map(f -> quietly(() -> (String) f.get(null))).filter(n -> !known.contains(n)).sorted().toList();
        String node = get(admin.describeCluster().nodes()).iterator().next().idString();
        int broker = settings(ConfigResource.Type.BROKER, node).entries().size();
        return known.size() + " topic settings (not listed: " + missing + "), " + broker + " broker settings";
    }

    static void alter(String topic, String setting, String value, AlterConfigOp.OpType how) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        get(admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(setting, value), how)))).all());
    }

    static String configsAlter() throws Exception {
        String name = newTopic("alter");
        alter(name, "max.message.bytes", "2000", AlterConfigOp.OpType.SET);
        until("the new value", () -> quietly(() -> settings(ConfigResource.Type.TOPIC, name).get("max.message.bytes").value().equals("2000")));
        String refused;
        try {
            produce(Map.of("retries", 0), List.of(new ProducerRecord<>(name, new byte[5000])));
            refused = "none";
        } catch (ExecutionException error) {
            refused = error.getCause().getClass().getSimpleName();
        }
        same(refused, "RecordTooLargeException", "a record beyond the new limit");
        alter(name, "max.message.bytes", null, AlterConfigOp.OpType.DELETE);
        until("the default again", () -> quietly(() -> settings(ConfigResource.Type.TOPIC, name).get("max.message.bytes").value().equals("1048588")));
        alter(name, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        until("both policies", () -> quietly(() -> settings(ConfigResource.Type.TOPIC, name).get("cleanup.policy").value().equals("delete,compact")));
        return "and it takes effect";
    }

    static String[] committedGroup() throws Exception {
        String topic = newTopic("groups"), group = fresh("group");
        produce(Map.of(), numbers(topic, 1));
        try (var member = consumer(group, Map.of())) {
            member.subscribe(List.of(topic));
            read(member, 1);
            member.commitSync();
        }
        return new String[] {topic, group};
    }

    static String groups() throws Exception {
        String[] names = committedGroup();
        String topic = names[0], group = names[1];
        same(get(admin.listGroups(ListGroupsOptions.forConsumerGroups()).all()).stream().anyMatch(g -> g.groupId().equals(group)), true, "the group is listed");
        Member member = new Member(topic, group, Map.of("client.id", "compat-java"));
        until("the assignment", () -> member.owned.size() == 1);
        var described = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
        same(described.groupState().toString(), "Stable", "state");
        same(described.members().iterator().next().clientId(), "compat-java", "client id");
        member.leave();
        var offsets = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        same(offsets.get(new TopicPartition(topic, 0)).offset(), 1L, "offset");
        return "";
    }

    static String groupsDelete() throws Exception {
        String[] names = committedGroup();
        String group = names[1];
        TopicPartition partition = new TopicPartition(names[0], 0);
        get(admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(0))).all());
        same(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition).offset(), 0L, "altered offset");
        get(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
        same(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition), null, "the offset after deletion");
        get(admin.deleteConsumerGroups(List.of(group)).all());
        same(raised(() -> get(admin.deleteConsumerGroups(List.of(group)).all())), "GroupIdNotFoundException", "deleting it again");
        return "";
    }

    static long earliest(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return get(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all()).get(partition).offset();
    }

    static String retention() throws Exception {
        String sized = newTopic("size", 1, Map.of("segment.bytes", "1048576", "retention.bytes", "1048576"));
        String aged = newTopic("age", 1, Map.of("retention.ms", "3000", "segment.ms", "1000"));
        String kept = newTopic("kept", 1, Map.of("segment.bytes", "1048576"));
        for (String topic : List.of(sized, aged, kept))
            produce(Map.of("linger.ms", 5), IntStream.range(0, 8000).mapToObj(i -> new ProducerRecord<byte[], byte[]>(topic, new byte[500])).toList());
        until("what is too old and too much to be gone", () -> quietly(() -> {
            produce(Map.of(), numbers(aged, 1));  // what is written last is never too old
            Thread.sleep(500);
            return earliest(aged) >= 8000 && earliest(sized) > 0;
        }));
        same(List.of(earliest(kept), earliest(sized) <= 8000 - 1500), List.of(0L, true), "what is to be kept");
        return "";
    }

    static String deleteRecords() throws Exception {
        String topic = newTopic("delete-records");
        TopicPartition partition = new TopicPartition(topic, 0);
        for (int i = 0; i < 5; i++) produce(Map.of(), numbers(topic, 1));
        var result = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(partition);
        same(get(result).lowWatermark(), 2L, "low watermark");
        same(readTopic(topic, 3, 1).get(0).offset(), 2L, "first offset left");
        return "";
    }

    static String cluster() throws Exception {
        var described = admin.describeCluster();
        same(get(described.nodes()).isEmpty() || get(described.clusterId()).isEmpty(), false, "no nodes or no cluster id");
        same(get(described.controller()) != null, true, "a controller");
        return "cluster " + get(described.clusterId());
    }

    static String logDirs() throws Exception {
        String topic = newTopic("log-dirs");
        produce(Map.of(), List.of(new ProducerRecord<>(topic, new byte[10_000])));
        var nodes = get(admin.describeCluster().nodes()).stream().map(Node::id).toList();
        long size = get(admin.describeLogDirs(nodes).allDescriptions()).values().stream().flatMap(dirs -> dirs.values().stream())
            .flatMap(d -> d.replicaInfos().entrySet().stream()).filter(e -> e.getKey().topic().equals(topic)).mapToLong(e -> e.getValue().size()).sum();
        same(size >= 10_000, true, "the size of the topic (" + size + ") holds its record");
        return "";
    }

    static String errors() throws Exception {
        String name = newTopic("errors", 2, Map.of());
        NewTopic bad = new NewTopic(fresh("bad"), 1, (short) 1).configs(Map.of("retention.ms", "a while"));
        same(raised(() -> get(admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all())), "TopicExistsException", "creating it again");
        same(raised(() -> get(admin.createTopics(List.of(bad)).all())), "InvalidConfigurationException", "a bad setting");
        same(raised(() -> get(admin.createTopics(List.of(new NewTopic("a b?", 1, (short) 1))).all())), "InvalidTopicException", "a bad name");
        same(raised(() -> get(admin.createTopics(List.of(new NewTopic(fresh("wide"), 1, (short) 99))).all())), "InvalidReplicationFactorException", "too many replicas");
        same(raised(() -> get(admin.deleteTopics(List.of(fresh("none"))).all())), "UnknownTopicOrPartitionException", "an unknown topic");
        same(raised(() -> get(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(1))).all())), "InvalidPartitionsException", "fewer partitions");
        same(raised(() -> get(admin.describeTopics(List.of(fresh("none"))).allTopicNames())), "UnknownTopicOrPartitionException", "describing an unknown topic");
        return "";
    }

    // ---- the run ----

    static final Map<String, Check> CHECKS = new LinkedHashMap<>();
    static {
        CHECKS.put("produce_consume", JavaClient::produceConsume);
        CHECKS.put("headers", JavaClient::headers);
        CHECKS.put("nulls", JavaClient::nulls);
        for (String name : List.of("none", "gzip", "snappy", "lz4", "zstd")) CHECKS.put("codec_" + name, () -> codec(name));
        CHECKS.put("timestamps", JavaClient::timestamps);
        CHECKS.put("large_message", JavaClient::largeMessage);
        for (String name : List.of("0", "1", "all")) CHECKS.put("acks_" + name, () -> acks(name));
        CHECKS.put("idempotent", JavaClient::idempotent);
        CHECKS.put("sent_twice", JavaClient::sentTwice);
        CHECKS.put("restart", JavaClient::restart);
        CHECKS.put("group_eager", JavaClient::groupEager);
        CHECKS.put("group_cooperative", JavaClient::groupCooperative);
        CHECKS.put("group_static", JavaClient::groupStatic);
        CHECKS.put("fenced", JavaClient::fenced);
        CHECKS.put("commit_resume", JavaClient::commitResume);
        CHECKS.put("seek_ends", JavaClient::seekEnds);
        CHECKS.put("seek_timestamp", JavaClient::seekTimestamp);
        CHECKS.put("topics", JavaClient::topics);
        CHECKS.put("partitions", JavaClient::partitions);
        CHECKS.put("configs_describe", JavaClient::configsDescribe);
        CHECKS.put("configs_alter", JavaClient::configsAlter);
        CHECKS.put("groups", JavaClient::groups);
        CHECKS.put("groups_delete", JavaClient::groupsDelete);
        CHECKS.put("retention", JavaClient::retention);
        CHECKS.put("delete_records", JavaClient::deleteRecords);
        CHECKS.put("cluster", JavaClient::cluster);
        CHECKS.put("log_dirs", JavaClient::logDirs);
        CHECKS.put("errors", JavaClient::errors);
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("[\\x00-\\x1f]", " ") + '"';
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

    static void report(String check, boolean ok, String detail) {
        String shortened = detail.length() > 500 ? detail.substring(0, 500) : detail;
        System.out.printf("{\"client\": \"Java client\", \"version\": %s, \"check\": %s, \"ok\": %s, \"detail\": %s}%n",
            quoted(clientVersion()), quoted(check), ok, quoted(shortened));
    }

    public static void main(String[] args) {
        List<String> options = List.of(args), only = new ArrayList<>();
        bootstrap = options.get(options.indexOf("--bootstrap") + 1);
        for (int i = 0; i < args.length; i++) if (args[i].equals("--only")) only.add(args[i + 1]);
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 20000, "request.timeout.ms", 10000));
        ExecutorService threads = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        for (var entry : CHECKS.entrySet()) {
            if (!only.isEmpty() && !only.contains(entry.getKey())) continue;
            if (System.getenv("COMPAT_CONTROL") == null && Set.of("restart", "sent_twice", "retention").contains(entry.getKey())) continue;
            try {
                report(entry.getKey(), true, threads.submit(entry.getValue()::run).get(150, TimeUnit.SECONDS));
            } catch (TimeoutException error) {
                report(entry.getKey(), false, "no end after 150 s");
            } catch (ExecutionException error) {
                report(entry.getKey(), false, error.getCause().toString());
            } catch (InterruptedException error) {
                break;
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);  // a client thread that hangs must not keep the run
    }
}
