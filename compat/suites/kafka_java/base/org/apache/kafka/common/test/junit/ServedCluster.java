package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
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
    static final String INSIDES = "asks for the broker's insides";
    private static final Set<String> PLUGINS = Set.of(
        "create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class", "metric.reporters",
        "principal.builder.class");
    private static final Pattern WORKER = Pattern.compile("worker (\\d+) is process (\\d+)");
    private static final int CONTROLLER = 3000;
    private static final long READY_S = 60;

    private final ClusterConfig config;
    private Path directory;
    private Process process;
    private String address;
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
        try {
            directory = Files.createTempDirectory("magnetar-kafka-java-");
            launch("localhost:0");
            setFeatures();
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private void launch(String at) throws IOException {
        List<String> command = new ArrayList<>(List.of(
            System.getenv("MAGNETAR"), "standalone", "--data", directory.resolve("data").toString(), "--kafka", at));
        if (config.numBrokers() > 1)
            command.addAll(List.of("--workers", String.valueOf(config.numBrokers())));
        command.addAll(List.of("--config", settings().toString()));
        File log = directory.resolve("log").toFile();
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.appendTo(log)).start();
        BufferedReader said = process.inputReader();
        for (String line = said.readLine(); line != null; line = said.readLine()) {
            if (line.startsWith("ready ")) {
                address = line.split("kafka=")[1].split(" ")[0];
                return;
            }
        }
        throw new IllegalStateException("the broker did not start: " + Files.readString(log.toPath()));
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

    private Path settings() throws IOException {
        Properties given = new Properties();
        given.putAll(config.serverProperties());
        given.putAll(config.perServerOverrideProperties().getOrDefault(0, Map.of()));
        for (String name : PLUGINS) {
            if (given.containsKey(name))
                throw new UnsupportedOperationException("has a plug-in in Java; it " + INSIDES);
        }
        if (given.containsKey("authorizer.class.name")) {
            given.put("authentication.enabled", "true");
            given.put("anonymous.user.role", "ANONYMOUS"); // as Kafka calls those that do not say who they are
        }
        Path file = directory.resolve("server.properties");
        try (Writer writer = Files.newBufferedWriter(file)) {
            given.store(writer, null);
        }
        return file;
    }

    @Override
    public boolean started() {
        return process != null;
    }

    @Override
    public void stop() {
        stopped = true;
        end();
        if (directory == null)
            return;
        try (Stream<Path> paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private void end() {
        if (process == null)
            return;
        process.destroy();
        try {
            if (!process.waitFor(READY_S, TimeUnit.SECONDS))
                process.destroyForcibly();
        } catch (InterruptedException error) {
            process.destroyForcibly();
        }
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int id) {
        if (config.numBrokers() == 1)
            end();
        else // it is started again by itself
            worker(id).ifPresent(ProcessHandle::destroy);
    }

    @Override
    public void startBroker(int id) {
        if (config.numBrokers() > 1)
            return;
        try {
            launch(address);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private Optional<ProcessHandle> worker(int id) {
        try (Stream<String> lines = Files.lines(directory.resolve("log"))) {
            Matcher last = null;
            for (Matcher each : (Iterable<Matcher>) lines.map(WORKER::matcher).filter(Matcher::find)::iterator)
                last = Integer.parseInt(each.group(1)) == id ? each : last;
            return last == null ? Optional.empty() : ProcessHandle.of(Long.parseLong(last.group(2)));
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> brokers = new LinkedHashMap<>();
        for (int id = 0; id < config.numBrokers(); id++)
            brokers.put(id, ServedBroker.of(this, id));
        return brokers;
    }

    /** There is one for who asks it for topics' ids, and none for who would wait for what it has written. */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        boolean named = StackWalker.getInstance().walk(frames -> frames.anyMatch(each -> each.getMethodName().equals("getTopicIds")));
        return named ? Map.of(CONTROLLER, ServedBroker.controller(this)) : Map.of();
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
        return address;
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException(INSIDES);
    }

    @Override
    public String clusterId() {
        return asked(admin -> admin.describeCluster().clusterId());
    }

    List<Node> nodes() {
        return asked(admin -> admin.describeCluster().nodes()).stream().sorted(Comparator.comparing(Node::id)).toList();
    }

    /** Returns what the cluster answers; an error of its is thrown as it is. */
    <T> T asked(Function<Admin, KafkaFuture<T>> question) {
        try (Admin admin = admin()) {
            return question.apply(admin).get();
        } catch (ExecutionException error) {
            throw error.getCause() instanceof RuntimeException known ? known : new RuntimeException(error);
        } catch (InterruptedException error) {
            throw new RuntimeException(error);
        }
    }

    boolean isDown(int id) {
        return config.numBrokers() == 1 ? process == null || !process.isAlive() : worker(id).isEmpty();
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
