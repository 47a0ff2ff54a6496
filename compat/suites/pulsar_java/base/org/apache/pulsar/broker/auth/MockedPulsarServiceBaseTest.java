package org.apache.pulsar.broker.auth;

import static org.mockito.Mockito.mock;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.net.URL;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.admin.Clusters;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminBuilder;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Tenants;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.common.policies.data.Policies;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.policies.data.TenantInfoImpl;
import org.apache.pulsar.tests.TestRetrySupport;
import org.mockito.invocation.InvocationOnMock;
import org.testng.SkipException;

/**
 * Takes the place of the class of this name that Pulsar's own tests begin with, which starts a broker in their process.
 * Here they are given clients of a broker that serves already: MAGNETAR_PULSAR and MAGNETAR_HTTP say where. A test that asks for
 * the broker's insides is skipped; what it configures is told to the broker where that can be while it serves. What a test has made is deleted behind it.
 */
public abstract class MockedPulsarServiceBaseTest extends TestRetrySupport {
    public static final String BROKER_KEYSTORE_FILE_PATH = "";
    public static final String BROKER_TRUSTSTORE_FILE_PATH = "";
    public static final String CA_CERT_FILE_PATH = "";
    public static final String BROKER_CERT_FILE_PATH = "";
    public static final String BROKER_KEY_FILE_PATH = "";
    public static final String CLUSTER = "standalone";

    private static final String SERVICE_URL = System.getenv("MAGNETAR_PULSAR");
    private static final String HTTP_URL = System.getenv("MAGNETAR_HTTP");
    private static final Set<String> OUTSIDE =
        Set.of(CLUSTER, "public", "pulsar", "public/default", "public/functions", "pulsar/system", "public/__kafka");

    /** What could not be deleted behind a test before. */
    private static final Set<Object> LEFT = new HashSet<>();

    protected ServiceConfiguration conf = getDefaultConf();
    protected PulsarService pulsar;
    protected PulsarAdmin admin;
    protected PulsarClient pulsarClient;
    protected boolean enableBrokerGateway;
    protected URL brokerUrl;
    protected URL brokerUrlTls;
    protected URI lookupUrl;
    protected boolean isTcpLookup;
    protected String configClusterName = "test";
    protected boolean enableBrokerInterceptor;
    protected boolean useTestZookeeper;
    private final List<AutoCloseable> closing = new ArrayList<>();

    protected PulsarService getPulsar() {
        return pulsar;
    }

    protected final void resetConfig() {
        conf = getDefaultConf();
    }

    protected ServiceConfiguration getDefaultConf() {
        ServiceConfiguration configuration = new ServiceConfiguration();
        configuration.setClusterName(configClusterName == null ? "test" : configClusterName);
        return configuration;
    }

    protected void doInitConf() throws Exception {}

    protected void setupWithClusterName(String name) throws Exception {
        configClusterName = name;
        internalSetup();
    }

    protected final void internalSetup() throws Exception {
        init();
        pulsarClient = newPulsarClient(lookupUrl.toString(), 0);
    }

    protected final void internalSetup(ServiceConfiguration configuration) throws Exception {
        conf = configuration;
        internalSetup();
    }

    protected final void internalSetupForStatsTest() throws Exception {
        init();
        pulsarClient = newPulsarClient(lookupUrl.toString(), 1);
    }

    protected final void init() throws Exception {
        incrementSetupNumber();
        doInitConf();
        PulsarAdminBuilder builder = PulsarAdmin.builder().serviceHttpUrl(HTTP_URL);
        customizeNewPulsarAdminBuilder(builder);
        admin = begun(builder.build());
        deleteAll();
        configure();
        brokerUrl = new URL(HTTP_URL);
        lookupUrl = new URI(isTcpLookup ? SERVICE_URL : HTTP_URL);
        pulsar = mock(PulsarService.class, this::insides);
    }

    /** Tests make what a broker in their process begins without; it is there already. */
    private static PulsarAdmin begun(PulsarAdmin admin) {
        Map<String, Object> parts = Map.of("clusters", begun(Clusters.class, admin.clusters()), "tenants", begun(Tenants.class, admin.tenants()),
            "namespaces", begun(Namespaces.class, admin.namespaces()));
        return proxy(PulsarAdmin.class, (of, method, with) -> parts.getOrDefault(method.getName(), asked(admin, method, with)));
    }

    private static <T> T begun(Class<T> type, T part) {
        return proxy(type, (of, method, with) -> {
            for (int i = 0; with != null && i < with.length; i++) with[i] = ofItsCluster(with[i]);
            try {
                return asked(part, method, with);
            } catch (PulsarAdminException.ConflictException error) {
                if (method.getName().startsWith("create") && (OUTSIDE.contains(with[0]) || LEFT.contains(with[0]))) return null;
                throw error;
            }
        });
    }

    /** Tests are of a cluster "test"; a standalone broker of Pulsar's has its own name for that, which it cannot be told. */
    private static Object ofItsCluster(Object said) {
        if (said instanceof TenantInfo tenant && tenant.getAllowedClusters().contains("test"))
            return new TenantInfoImpl(tenant.getAdminRoles(), Set.of(CLUSTER));
        if (said instanceof Set<?> clusters && clusters.contains("test")) return Set.of(CLUSTER);
        if (said instanceof Policies policies && policies.replication_clusters.contains("test")) policies.replication_clusters = Set.of(CLUSTER);
        return "test".equals(said) ? CLUSTER : said;
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static Object asked(Object of, Method method, Object[] with) throws Throwable {
        try {
            return method.invoke(of, with);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private Object insides(InvocationOnMock asked) {
        switch (asked.getMethod().getName()) {
            case "getWebServiceAddress", "getSafeWebServiceAddress": return HTTP_URL;
            case "getBrokerServiceUrl", "getSafeBrokerServiceUrl": return SERVICE_URL;
            case "getConfiguration", "getConfig": return conf;
            case "getBrokerListenPort": return java.util.Optional.of(URI.create(SERVICE_URL).getPort());
            case "getListenPortHTTP": return java.util.Optional.of(URI.create(HTTP_URL).getPort());
            case "getAdvertisedAddress": return "localhost";
            case "getAdminClient": return admin;
            case "getClient": return pulsarClient;
            case "toString": return "a broker elsewhere";
            case "hashCode": return 1;
            case "close": return null;
            default: throw new SkipException("asks for the broker's insides: " + asked.getMethod().getName());
        }
    }

    protected PulsarClient newPulsarClient(String url, int intervalInSecs) throws PulsarClientException {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(url).statsInterval(intervalInSecs, TimeUnit.SECONDS);
        customizeNewPulsarClientBuilder(builder);
        return createNewPulsarClient(builder);
    }

    protected void customizeNewPulsarClientBuilder(ClientBuilder builder) {}

    protected void customizeNewPulsarAdminBuilder(PulsarAdminBuilder builder) {}

    protected PulsarClient createNewPulsarClient(ClientBuilder builder) throws PulsarClientException {
        return registerCloseable(builder.build());
    }

    protected PulsarClient replacePulsarClient(ClientBuilder builder) throws PulsarClientException {
        if (pulsarClient != null) pulsarClient.shutdown();
        pulsarClient = createNewPulsarClient(builder);
        return pulsarClient;
    }

    protected <T extends AutoCloseable> T registerCloseable(T closeable) {
        closing.add(closeable);
        return closeable;
    }

    protected final void internalCleanup() throws Exception {
        markCurrentSetupNumberCleaned();
        for (AutoCloseable each : closing) {
            try {
                if (each instanceof PulsarClient client) client.shutdown();
                else each.close();
            } catch (Exception closed) {
                // by the test itself
            }
        }
        closing.clear();
        if (pulsarClient != null) {
            pulsarClient.shutdown();
            pulsarClient = null;
        }
        if (admin != null) {
            deleteAll();
            admin.close();
            admin = null;
        }
        onCleanup();
    }

    protected void onCleanup() {}

    protected void closeAdmin() {
        if (admin != null) admin.close();
        admin = null;
    }

    /** Leave nothing of the test before: its broker would have gone with all that it had. */
    private void deleteAll() throws Exception {
        for (String tenant : admin.tenants().getTenants()) {
            for (String namespace : admin.namespaces().getNamespaces(tenant)) {
                if (OUTSIDE.contains(namespace)) {
                    if (namespace.equals("public/default")) deleteTopics(namespace);
                } else {
                    quietly(namespace, () -> { admin.namespaces().deleteNamespace(namespace, true); return null; });
                }
            }
            if (!OUTSIDE.contains(tenant)) quietly(tenant, () -> { admin.tenants().deleteTenant(tenant, true); return null; });
        }
        for (String cluster : admin.clusters().getClusters())
            if (!cluster.equals(CLUSTER)) quietly(cluster, () -> { admin.clusters().deleteCluster(cluster); return null; });
        for (String name : admin.brokers().getAllDynamicConfigurations().keySet())
            quietly(name, () -> { admin.brokers().deleteDynamicConfiguration(name); return null; });
    }

    /** Have the broker told what the test has configured, as far as a broker that serves can be told. */
    private void configure() throws Exception {
        ServiceConfiguration released = new ServiceConfiguration();
        List<String> known = admin.brokers().getDynamicConfigurationNames();
        for (Field field : ServiceConfiguration.class.getDeclaredFields()) {
            if (!known.contains(field.getName())) continue;
            field.setAccessible(true);
            Object value = field.get(conf);
            if (value != null && !value.equals(field.get(released)))
                quietly(field.getName(), () -> { admin.brokers().updateDynamicConfiguration(field.getName(), value.toString()); return null; });
        }
    }

    private void deleteTopics(String namespace) throws Exception {
        for (String topic : admin.topics().getPartitionedTopicList(namespace)) quietly(topic, () -> { admin.topics().deletePartitionedTopic(topic, true); return null; });
        for (String topic : admin.topics().getList(namespace)) quietly(topic, () -> { admin.topics().delete(topic, true); return null; });
    }

    private static void quietly(String what, Callable<Void> work) {
        try {
            work.call();
            LEFT.remove(what);
        } catch (Exception error) {
            LEFT.add(what);
            System.err.println("cleaning: " + error);
        }
    }

    protected void beforePulsarStart(PulsarService service) throws Exception {}

    protected void afterPulsarStart(PulsarService service) throws Exception {}

    protected void restartBroker() throws Exception {
        throw new SkipException("restarts the broker");
    }

    protected void restartBroker(java.util.function.Consumer<ServiceConfiguration> change) throws Exception {
        restartBroker();
    }

    protected void stopBroker() throws Exception {
        throw new SkipException("stops the broker");
    }

    protected void startBroker() throws Exception {
        throw new SkipException("starts the broker");
    }

    protected void waitForZooKeeperWatchers() {}

    protected TenantInfoImpl createDefaultTenantInfo() throws PulsarAdminException {
        return new TenantInfoImpl(Set.of(), Set.of(CLUSTER));
    }

    protected void setupDefaultTenantAndNamespace() throws Exception {
        if (!admin.tenants().getTenants().contains("public")) admin.tenants().createTenant("public", createDefaultTenantInfo());
        if (!admin.namespaces().getNamespaces("public").contains("public/default")) admin.namespaces().createNamespace("public/default");
    }

    public static boolean retryStrategically(Predicate<Void> holds, int times, long sleptMillis) throws Exception {
        for (int i = 0; i < times; i++) {
            if (holds.test(null)) return true;
            Thread.sleep(sleptMillis * (i + 1));
        }
        return holds.test(null);
    }

    protected void deleteNamespaceWithRetry(String namespace, boolean force) throws Exception {
        deleteNamespaceWithRetry(namespace, force, admin);
    }

    public static void deleteNamespaceWithRetry(String namespace, boolean force, PulsarAdmin admin) throws Exception {
        for (int left = 10; ; left--) {
            try {
                admin.namespaces().deleteNamespace(namespace, force);
                return;
            } catch (PulsarAdminException error) {
                if (left == 0) throw error;
                Thread.sleep(300);
            }
        }
    }

    public static void setFieldValue(Class<?> type, Object object, String name, Object value) throws Exception {
        java.lang.reflect.Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        field.set(object, value);
    }

    protected ServiceProducer getServiceProducer(org.apache.pulsar.client.impl.ProducerImpl<?> producer, String topic) {
        throw new SkipException("asks for the broker's insides: a producer");
    }

    protected void sleepSeconds(int seconds) {
        try {
            Thread.sleep(seconds * 1000L);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    protected void reconnectAllConnections() throws Exception {
        throw new SkipException("asks for the broker's insides: connections");
    }

    protected void logTopicStats(String topic) {}

    protected void assertOtelMetricLongSumValue(String name, int value) {
        throw new SkipException("asks for the broker's insides: metrics");
    }

    public static class ServiceProducer {
        public org.apache.pulsar.broker.service.Producer getServiceProducer() {
            throw new SkipException("asks for the broker's insides: a producer");
        }

        public org.apache.pulsar.broker.service.persistent.PersistentTopic getPersistentTopic() {
            throw new SkipException("asks for the broker's insides: a topic");
        }
    }
}
