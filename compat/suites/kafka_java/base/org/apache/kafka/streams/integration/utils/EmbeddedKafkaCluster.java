package org.apache.kafka.streams.integration.utils;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.test.junit.ServedProcess;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.test.TestUtils;

/**
 * Takes the place of the class of this name in the tests of Kafka Streams, which starts Kafka's brokers in the tests' process:
 * brokers of Magnetar's, in processes of their own.
 */
public class EmbeddedKafkaCluster {
    private static final Map<String, String> DEFAULTS = Map.of(
        "group.streams.min.session.timeout.ms", "100",
        "group.streams.min.heartbeat.interval.ms", "100",
        "group.min.session.timeout.ms", "0",
        "group.initial.rebalance.delay.ms", "0",
        "offsets.topic.num.partitions", "5",
        "transaction.state.log.num.partitions", "5",
        "auto.create.topics.enable", "true");

    public final MockTime time;
    private final int brokers;
    private final Properties settings;
    private ServedProcess served;

    public EmbeddedKafkaCluster(int brokers) {
        this(brokers, new Properties());
    }

    public EmbeddedKafkaCluster(int brokers, Properties settings) {
        this(brokers, settings, Map.of());
    }

    public EmbeddedKafkaCluster(int brokers, Properties settings, long startMs) {
        this(brokers, settings, Map.of(), startMs, System.nanoTime());
    }

    public EmbeddedKafkaCluster(int brokers, Properties settings, Map<Integer, Map<String, String>> each) {
        this(brokers, settings, each, System.currentTimeMillis(), System.nanoTime());
    }

    public EmbeddedKafkaCluster(int brokers, Properties settings, Map<Integer, Map<String, String>> each, long startMs, long startNs) {
        this.brokers = brokers;
        this.settings = new Properties();
        this.settings.putAll(DEFAULTS);
        this.settings.putAll(settings);
        if (each.values().stream().distinct().count() == 1) // workers have their settings in common
            each.values().forEach(this.settings::putAll);
        this.time = new MockTime(startMs, startNs);
    }

    public void start() {
        served = new ServedProcess(brokers, settings);
        served.start();
    }

    public void verifyClusterReadiness() { }

    public void stop() {
        served.stop();
    }

    public String bootstrapServers() {
        return served.address();
    }

    public boolean sslEnabled() {
        return false;
    }

    public Map<String, String> clientDefaultConfig() {
        return Map.of("bootstrap.servers", bootstrapServers());
    }

    public Admin createAdminClient() {
        return Admin.create(new HashMap<>(clientDefaultConfig()));
    }

    public void createTopics(String... names) throws InterruptedException {
        for (String name : names)
            createTopic(name, 1, 1, Map.of());
    }

    public void createTopic(String name) throws InterruptedException {
        createTopic(name, 1, 1, Map.of());
    }

    public void createTopic(String name, int partitions) throws InterruptedException {
        createTopic(name, partitions, 1, Map.of());
    }

    public void createTopic(String name, int partitions, int replicas) throws InterruptedException {
        createTopic(name, partitions, replicas, Map.of());
    }

    public void createTopic(String name, int partitions, int replicas, Map<String, String> config) throws InterruptedException {
        try (Admin admin = createAdminClient()) {
            try {
                admin.createTopics(List.of(new NewTopic(name, partitions, (short) replicas).configs(config))).all().get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof TopicExistsException))
                    throw error;
            }
            TestUtils.waitForCondition(() -> {
                var told = admin.describeTopics(List.of(name)).topicNameValues().get(name).get().partitions();
                return told.size() == partitions && told.stream().allMatch(each -> each.leader() != null && each.leader().id() >= 0);
            }, () -> name + " has no leaders");
        } catch (ExecutionException error) {
            throw new RuntimeException(error);
        }
    }

    public void deleteTopic(String name) {
        deleteTopics(name);
    }

    public void deleteTopics(String... names) {
        try (Admin admin = createAdminClient()) {
            for (String name : names) {
                try {
                    admin.deleteTopics(List.of(name)).all().get();
                } catch (ExecutionException error) {
                    if (!(error.getCause() instanceof UnknownTopicOrPartitionException))
                        throw new RuntimeException(error);
                }
            }
        } catch (InterruptedException error) {
            throw new RuntimeException(error);
        }
    }

    public void deleteAllTopics() {
        deleteTopics(getAllTopicsInCluster().stream().filter(each -> !each.startsWith("__")).toArray(String[]::new));
    }

    public void waitForRemainingTopics(long mostMs, String... names) throws InterruptedException {
        TestUtils.waitForCondition(() -> {
            Set<String> there = new HashSet<>(getAllTopicsInCluster());
            there.removeIf(each -> each.startsWith("__"));
            return there.equals(Set.of(names));
        }, mostMs, () -> "topics are " + getAllTopicsInCluster());
    }

    public Set<String> getAllTopicsInCluster() {
        try (Admin admin = createAdminClient()) {
            return admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new RuntimeException(error);
        }
    }

    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = createAdminClient()) {
            Config told = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            Properties found = new Properties();
            for (ConfigEntry each : told.entries()) {
                if (each.value() != null)
                    found.put(each.name(), each.value());
            }
            return found;
        } catch (InterruptedException | ExecutionException error) {
            throw new RuntimeException(error);
        }
    }

    public void produce(Map<String, Object> config, String topic, Integer partition, String key, String value) {
        Map<String, Object> given = new HashMap<>(config);
        given.putIfAbsent("bootstrap.servers", bootstrapServers());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(given)) {
            producer.send(new ProducerRecord<>(topic, partition, key, value)).get();
        } catch (InterruptedException | ExecutionException error) {
            throw new RuntimeException(error);
        }
    }

    public KafkaConsumer<byte[], byte[]> createConsumer(Map<String, Object> config) {
        Map<String, Object> given = new HashMap<>(config);
        given.putIfAbsent("bootstrap.servers", bootstrapServers());
        given.putIfAbsent("group.id", UUID.randomUUID().toString());
        given.putIfAbsent("enable.auto.commit", "false");
        given.putIfAbsent("auto.offset.reset", "earliest");
        given.putIfAbsent("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        given.putIfAbsent("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return new KafkaConsumer<>(given);
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(Map<String, Object> config, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(config);
        consumer.subscribe(List.of(topics));
        return consumer;
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(Map<String, Object> config, ConsumerRebalanceListener listener, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(config);
        consumer.subscribe(List.of(topics), listener);
        return consumer;
    }

    public void setGroupSessionTimeout(String group, int ms) {
        setOfGroup(group, "streams.session.timeout.ms", ms);
    }

    public void setGroupHeartbeatTimeout(String group, int ms) {
        setOfGroup(group, "streams.heartbeat.interval.ms", ms);
    }

    public void setGroupStandbyReplicas(String group, int count) {
        setOfGroup(group, "streams.num.standby.replicas", count);
    }

    public void setGroupStreamsInitialRebalanceDelay(String group, int ms) {
        setOfGroup(group, "streams.initial.rebalance.delay.ms", ms);
    }

    private void setOfGroup(String group, String name, int value) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Collection<AlterConfigOp> changes = List.of(new AlterConfigOp(new ConfigEntry(name, String.valueOf(value)), AlterConfigOp.OpType.SET));
        try (Admin admin = createAdminClient()) {
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new RuntimeException(error);
        }
    }
}
