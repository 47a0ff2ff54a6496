package kafka.integration;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.MetricName;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.junit.Served;
import org.apache.kafka.common.test.junit.ServedBroker;
import org.apache.kafka.common.test.junit.ServedProcess;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import scala.Option;
import scala.collection.Seq;
import scala.collection.mutable.ArrayBuffer;
import scala.collection.mutable.Buffer;

/**
 * Takes the place of what starts brokers for the tests of Kafka's core: there is one process of ours with as many workers
 * as a test wants brokers. Topics are made and ACLs changed by one who is allowed to.
 */
public abstract class KafkaServerTestHarness extends QuorumTestHarness {
    private static final String OF_NODE = "process.roles|node.id|broker.id.*|.*listener.*|log.dirs?|metadata.log.dir|controller\\..*"
        + "|security.inter.broker.protocol|broker.rack|principal.builder.class|.*\\.(reporters|class(es)?)";
    /** Who comes by the listener for clients, in tests that tell listeners apart. */
    private static final String CLIENT = "client";

    static {
        KafkaYammerMetrics.defaultRegistry().newGauge(
            new MetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount"), new Gauge<Double>() {
                @Override
                public Double value() {
                    return 0.0; // tests of logins look here for whom a broker in their own process ended; there is none
                }
            });
    }

    private final ArrayBuffer<KafkaBroker> brokers = new ArrayBuffer<>();
    private Seq<KafkaConfig> instanceConfigs;
    private boolean[] alive;
    private Served served;

    public abstract Seq<KafkaConfig> generateConfigs();

    public void configureSecurityBeforeServersStart(TestInfo testInfo) { }

    public void configureSecurityAfterServersStart() { }

    public Seq<KafkaConfig> instanceConfigs() {
        return instanceConfigs;
    }

    public void instanceConfigs_$eq(Seq<KafkaConfig> configs) {
        instanceConfigs = configs;
    }

    public boolean[] alive() {
        return alive;
    }

    public void alive_$eq(boolean[] alive) {
        this.alive = alive;
    }

    public Seq<KafkaConfig> configs() {
        if (instanceConfigs == null)
            instanceConfigs = generateConfigs();
        return instanceConfigs;
    }

    public Buffer<KafkaBroker> brokers() {
        return brokers;
    }

    public Buffer<KafkaBroker> servers() {
        return brokers;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    public Buffer<BrokerServer> brokerServers() {
        return (Buffer) brokers;
    }

    public Seq<KafkaBroker> aliveBrokers() {
        return asScala(IntStream.range(0, alive.length).filter(id -> alive[id]).mapToObj(brokers::apply).toList());
    }

    public Option<KafkaBroker> serverForId(int id) {
        return id < 0 || id >= brokers.size() ? Option.empty() : Option.apply(brokers.apply(id));
    }

    public int boundPort(KafkaBroker server) {
        return server.boundPort(listenerName());
    }

    public String bootstrapServers(ListenerName listenerName) {
        if (listenerName.value().equals(SecurityProtocol.PLAINTEXT.name) && securityProtocol() != SecurityProtocol.PLAINTEXT)
            return served.process().openAddress();
        return served.nodes().stream().map(each -> each.host() + ":" + each.port()).collect(Collectors.joining(","));
    }

    public ListenerName bootstrapServers$default$1() {
        return listenerName();
    }

    public SecurityProtocol securityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public ListenerName listenerName() {
        return ListenerName.forSecurityProtocol(securityProtocol());
    }

    public Option<File> trustStoreFile() {
        return Option.empty();
    }

    public Option<Properties> serverSaslProperties() {
        return Option.empty();
    }

    public Option<Properties> clientSaslProperties() {
        return Option.empty();
    }

    public Time brokerTime(int brokerId) {
        return Time.SYSTEM;
    }

    @Override
    @BeforeEach
    public void setUp(TestInfo testInfo) {
        super.setUp(testInfo);
        configs(); // make certificates, which what follows looks at
        configureSecurityBeforeServersStart(testInfo);
        served = new Served(new ServedProcess(configs().size(), settings(), CLIENT, securityProtocol()), id -> configs().apply(id));
        createBrokers(true);
        Credentials.ofFormatter(this).forEach(each -> served.asked(admin -> admin.alterUserScramCredentials(List.of(each)).all()));
        configureSecurityAfterServersStart();
    }

    @Override
    @AfterEach
    public void tearDown() {
        if (served != null)
            served.process().stop();
        super.tearDown();
    }

    /** Of the first broker, without what is about nodes and listeners, or about classes of Java's. */
    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>(configs().head().originals());
        Object principals = settings.get("principal.builder.class");
        boolean authorizes = settings.containsKey("authorizer.class.name");
        if (principals != null && !String.valueOf(principals).contains("AuthorizerIntegrationTest"))
            throw new UnsupportedOperationException("has a plug-in in Java; it " + Served.INSIDES);
        settings.keySet().removeIf(name -> name.matches(OF_NODE));
        if (securityProtocol() != SecurityProtocol.PLAINTEXT)
            settings.putAll(Credentials.settings(settings));
        if (authorizes)
            settings.put("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        return settings;
    }

    private void createBrokers(boolean startup) {
        alive = new boolean[configs().size()];
        if (startup)
            served.process().start();
        for (int id = 0; id < alive.length; id++) {
            brokers.addOne(ServedBroker.of(served, id));
            alive[id] = startup;
        }
    }

    public void recreateBrokers(boolean reconfigure, boolean startup) {
        if (reconfigure)
            instanceConfigs = null;
        served.process().end();
        brokers.clear();
        served.process().set(settings());
        createBrokers(startup);
    }

    public boolean recreateBrokers$default$1() {
        return false;
    }

    public boolean recreateBrokers$default$2() {
        return false;
    }

    public int killRandomBroker() {
        int index = new Random().nextInt(alive.length);
        killBroker(index);
        return index;
    }

    public void killBroker(int index) {
        killBroker(index, Duration.ofMinutes(5));
    }

    public void killBroker(int index, Duration timeout) {
        if (alive[index])
            brokers.apply(index).shutdown(timeout);
        alive[index] = false;
    }

    public void startBroker(int index) {
        if (!alive[index])
            brokers.apply(index).startup();
        alive[index] = true;
    }

    public void restartDeadBrokers(boolean reconfigure) {
        if (reconfigure) {
            instanceConfigs = null;
            served.process().set(settings());
        }
        for (int id = 0; id < alive.length; id++)
            startBroker(id);
    }

    public boolean restartDeadBrokers$default$1() {
        return false;
    }

    @Override
    public ControllerServer controllerServer() {
        return ServedBroker.controller(served);
    }

    /** With as many partitions as the coordinators of groups have. */
    public void createOffsetsTopic(ListenerName listenerName, Properties adminClientConfig) {
        served.createTopic(new NewTopic("__consumer_offsets", Optional.empty(), Optional.empty()));
    }

    public ListenerName createOffsetsTopic$default$1() {
        return listenerName();
    }

    public Properties createOffsetsTopic$default$2() {
        return new Properties();
    }

    public scala.collection.immutable.Map<Object, Object> createTopic(
            String topic, int partitions, int replicas, Properties config, ListenerName listenerName, Properties adminClientConfig) {
        Map<String, String> configs = new HashMap<>();
        config.forEach((name, value) -> configs.put(String.valueOf(name), String.valueOf(value)));
        return leaders(served.createTopic(new NewTopic(topic, partitions, (short) replicas).configs(configs)));
    }

    public int createTopic$default$2() {
        return 1;
    }

    public int createTopic$default$3() {
        return 1;
    }

    public Properties createTopic$default$4() {
        return new Properties();
    }

    public ListenerName createTopic$default$5() {
        return listenerName();
    }

    public Properties createTopic$default$6() {
        return new Properties();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    public scala.collection.immutable.Map<Object, Object> createTopicWithAssignment(
            String topic, scala.collection.Map<Object, Seq<Object>> assignment, ListenerName listenerName) {
        Map<Integer, List<Integer>> replicas = new HashMap<>();
        asJava(assignment).forEach((partition, brokers) -> replicas.put((Integer) partition, new ArrayList<>((List) asJava(brokers))));
        return leaders(served.createTopic(new NewTopic(topic, replicas)));
    }

    public ListenerName createTopicWithAssignment$default$3() {
        return listenerName();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static scala.collection.immutable.Map<Object, Object> leaders(Map<Integer, Integer> leaders) {
        return (scala.collection.immutable.Map) immutable(leaders);
    }

    private static <K, V> scala.collection.immutable.Map<K, V> immutable(Map<K, V> map) {
        return scala.collection.immutable.Map$.MODULE$.from(asScala(map));
    }

    public void deleteTopic(String topic, ListenerName listenerName) {
        served.deleteTopic(topic);
    }

    public ListenerName deleteTopic$default$2() {
        return listenerName();
    }

    public void addAndVerifyAcls(scala.collection.immutable.Set<AccessControlEntry> acls, ResourcePattern resource) {
        List<AclBinding> wanted = asJava(acls).stream().map(each -> new AclBinding(resource, each)).toList();
        served.asked(admin -> admin.createAcls(wanted).all());
    }

    public void removeAndVerifyAcls(scala.collection.immutable.Set<AccessControlEntry> acls, ResourcePattern resource) {
        var unwanted = asJava(acls).stream().map(each -> new AclBinding(resource, each).toFilter()).toList();
        served.asked(admin -> admin.deleteAcls(unwanted).all());
    }

    public void waitForUserScramCredentialToAppearOnAllBrokers(String clientPrincipal, String mechanismName) { }

    public scala.collection.immutable.Map<String, Uuid> getTopicIds(Seq<String> names) {
        Map<String, TopicDescription> found = served.asked(admin -> admin.describeTopics(asJava(names)).allTopicNames());
        return immutable(found.values().stream().collect(Collectors.toMap(TopicDescription::name, TopicDescription::topicId)));
    }

    public scala.collection.immutable.Map<String, Uuid> getTopicIds() {
        return immutable(topics().stream().collect(Collectors.toMap(TopicListing::name, TopicListing::topicId)));
    }

    public scala.collection.immutable.Map<Uuid, String> getTopicNames() {
        return immutable(topics().stream().collect(Collectors.toMap(TopicListing::topicId, TopicListing::name)));
    }

    private List<TopicListing> topics() {
        return List.copyOf(served.asked(admin -> admin.listTopics().listings()));
    }

    /** All that is told is consistent. */
    public void ensureConsistentKRaftMetadata() { }

    public void changeClientIdConfig(String sanitizedClientId, Properties configs) {
        Map<String, String> entity = new HashMap<>();
        entity.put(ClientQuotaEntity.CLIENT_ID, sanitizedClientId.equals("<default>") ? null : sanitizedClientId);
        var values = configs.stringPropertyNames().stream()
            .map(name -> new ClientQuotaAlteration.Op(name, Double.valueOf(configs.getProperty(name)))).toList();
        served.asked(admin -> admin.alterClientQuotas(Set.of(new ClientQuotaAlteration(new ClientQuotaEntity(entity), values))).all());
    }
}
