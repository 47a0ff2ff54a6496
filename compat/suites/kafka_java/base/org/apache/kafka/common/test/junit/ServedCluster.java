package org.apache.kafka.common.test.junit;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.test.TestUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

/**
 * Brokers that serve from processes of their own: {@code $MAGNETAR standalone}, with as many workers as a test wants brokers.
 * What asks for a broker's insides fails with an error that RunTests takes for no failure.
 */
class ServedCluster implements ClusterInstance {
    static final String INSIDES = ServedProcess.INSIDES;
    private static final int CONTROLLER = 3000;

    private final ClusterConfig config;
    private Served served;
    private boolean stopped;

    ServedCluster(ClusterConfig config) {
        this.config = config;
    }

    @Override
    public void start() {
        if (started())
            return;
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT)
            throw new UnsupportedOperationException("logs in; it " + INSIDES);
        Map<String, String> settings = new HashMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(0, Map.of()));
        served = new Served(new ServedProcess(config.numBrokers(), settings), this::settings);
        served.process().start();
        setFeatures();
    }

    /** Of one broker, as the test gave them. */
    private KafkaConfig settings(int id) {
        Properties given = new Properties();
        given.putAll(config.serverProperties());
        given.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        given.put("node.id", String.valueOf(id));
        given.put("process.roles", "broker");
        given.put("controller.quorum.bootstrap.servers", "localhost:9093");
        given.put("controller.listener.names", "CONTROLLER");
        given.put("listeners", "PLAINTEXT://localhost:0");
        return KafkaConfig.fromProps(given);
    }

    /** A broker has the features of its release; a test that wants earlier ones, which a controller would give it, is skipped. */
    private void setFeatures() {
        config.features().forEach((feature, level) -> {
            try (Admin admin = admin()) {
                var known = admin.describeFeatures().featureMetadata().get();
                var now = known.finalizedFeatures().get(feature.featureName());
                if (!known.supportedFeatures().containsKey(feature.featureName()) || (now == null ? 0 : now.maxVersionLevel()) == level)
                    return;
                var type = now != null && now.maxVersionLevel() > level ? UpgradeType.SAFE_DOWNGRADE : UpgradeType.UPGRADE;
                admin.updateFeatures(Map.of(feature.featureName(), new FeatureUpdate(level, type)), new UpdateFeaturesOptions()).all().get();
            } catch (ExecutionException error) {
                throw new UnsupportedOperationException("wants " + feature + " at " + level + ", which " + INSIDES, error);
            } catch (InterruptedException error) {
                throw new RuntimeException(error);
            }
        });
    }

    @Override
    public boolean started() {
        return served != null;
    }

    @Override
    public void stop() {
        stopped = true;
        if (served != null)
            served.process().stop();
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int id) {
        served.process().endOne(id);
    }

    @Override
    public void startBroker(int id) {
        served.process().startOne(id);
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> brokers = new LinkedHashMap<>();
        for (int id = 0; id < config.numBrokers(); id++)
            brokers.put(id, ServedBroker.of(served, id));
        return brokers;
    }

    /** There is one for who asks it for topics' ids, and none for who would wait for what it has written. */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        boolean named = StackWalker.getInstance().walk(frames -> frames.anyMatch(each -> each.getMethodName().equals("getTopicIds")));
        return named ? Map.of(CONTROLLER, ServedBroker.controller(served)) : Map.of();
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of(CONTROLLER);
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        throw new UnsupportedOperationException(INSIDES);
    }

    @Override
    public String bootstrapServers() {
        return served.process().address();
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException(INSIDES);
    }

    @Override
    public String clusterId() {
        return served.clusterId();
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> admin.describeCluster().nodes().get().size() == config.numBrokers(), "not all brokers are there");
        }
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> {
                var told = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions();
                return told.size() == partitions && told.stream().allMatch(each -> each.leader() != null && each.leader().id() >= 0);
            }, 60_000, () -> topic + " was not made");
        }
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> !admin.listTopics().names().get().contains(topic), topic + " was not deleted");
        }
    }

    @Override
    public void ensureConsistentMetadata() { }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) { }

    @Override
    public List<Authorizer> authorizers() {
        throw new UnsupportedOperationException(INSIDES);
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> {
                Set<AccessControlEntry> found = new HashSet<>();
                for (AclBinding each : admin.describeAcls(filter).values().get())
                    found.add(each.entry());
                return found.equals(new HashSet<>(entries));
            }, "ACLs are not as expected");
        }
    }
}
