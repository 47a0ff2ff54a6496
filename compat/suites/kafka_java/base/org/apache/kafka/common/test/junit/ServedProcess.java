package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.plain.PlainLoginModule;

/** {@code $MAGNETAR standalone} with settings of a test, with as many workers as it wants brokers, and a directory of its own. */
public final class ServedProcess {
    static final String INSIDES = "asks for the broker's insides";
    private static final Set<String> PLUGINS = Set.of(
        "create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class", "metric.reporters",
        "principal.builder.class");
    private static final String ADMIN = "the-tests";
    private static final byte[] KEY = "a key of tests, and of nothing else".getBytes();
    private static final Pattern WORKER = Pattern.compile("worker (\\d+) is process (\\d+)");
    private static final long READY_S = 60;

    private final int workers;
    private final String anonymous;
    private final SecurityProtocol protocol;
    private final Path directory;
    private final Path settings;
    private final Set<Integer> ended = new HashSet<>();
    private Properties given;
    private boolean authorizes;
    private Process process;
    private String address = "localhost:0";
    private String adminAddress = "localhost:0";

    public ServedProcess(int workers, Map<?, ?> properties) {
        this(workers, properties, "ANONYMOUS", SecurityProtocol.PLAINTEXT); // as Kafka calls those that do not say who they are
    }

    /** Clients come by {@code protocol}; those who do not log in are {@code anonymous}, where there is an authorizer. */
    public ServedProcess(int workers, Map<?, ?> properties, String anonymous, SecurityProtocol protocol) {
        this.workers = workers;
        this.anonymous = anonymous;
        this.protocol = protocol;
        try {
            directory = Files.createTempDirectory("magnetar-kafka-java-");
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
        settings = directory.resolve("server.properties");
        set(properties);
        Runtime.getRuntime().addShutdownHook(new Thread(this::stop)); // also of a test that was cut short
    }

    /** Takes other settings; it has them when it starts. */
    public void set(Map<?, ?> properties) {
        given = new Properties();
        properties.forEach((name, value) -> given.put(name, text(value)));
        for (String name : PLUGINS) {
            if (given.containsKey(name))
                throw new UnsupportedOperationException("has a plug-in in Java; it " + INSIDES);
        }
        authorizes = given.containsKey("authorizer.class.name");
        if (authorizes) {
            given.put("authentication.enabled", "true");
            if (protocol == SecurityProtocol.PLAINTEXT)
                given.put("anonymous.user.role", anonymous);
            given.merge("super.users", "User:" + ADMIN, (before, more) -> before + ";" + more);
        }
        if (authorizes || protocol.name.startsWith("SASL")) {
            given.merge("sasl.enabled.mechanisms", "PLAIN", (some, plain) -> some.toString().contains("PLAIN") ? some : some + ",PLAIN");
            given.put("token.secret.key", Base64.getEncoder().encodeToString(KEY));
        }
        try (Writer writer = Files.newBufferedWriter(settings)) {
            given.store(writer, null);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private static String text(Object value) {
        if (value instanceof Password secret)
            return secret.value();
        if (value instanceof Collection<?> some)
            return some.stream().map(String::valueOf).collect(Collectors.joining(","));
        return String.valueOf(value);
    }

    /** What a client needs that is allowed everything. */
    Map<String, String> admin() {
        return client(hasTwo() ? adminAddress : address, authorizes ? SecurityProtocol.SASL_PLAINTEXT : SecurityProtocol.PLAINTEXT);
    }

    /** What a client needs that comes by the listener for clients. */
    Map<String, String> client() {
        return client(address, protocol);
    }

    private Map<String, String> client(String address, SecurityProtocol by) {
        Map<String, String> wanted = new HashMap<>(Map.of("bootstrap.servers", address, "security.protocol", by.name));
        if (by.name.endsWith("SSL")) { // with the broker's own certificate, which its own authority has signed
            given.stringPropertyNames().stream()
                .filter(name -> name.matches("ssl\\.(key|trust)store\\..*|ssl\\.key\\.password"))
                .forEach(name -> wanted.put(name, given.getProperty(name)));
            wanted.put("ssl.endpoint.identification.algorithm", "");
        }
        if (by.name.startsWith("SASL")) {
            wanted.put("sasl.mechanism", "PLAIN");
            wanted.put("sasl.jaas.config", PlainLoginModule.class.getName()
                + " required username=\"" + ADMIN + "\" password=\"token:" + token() + "\";");
        }
        return wanted;
    }

    /** Whether there is another listener than that of clients. */
    boolean hasTwo() {
        return authorizes || protocol != SecurityProtocol.PLAINTEXT;
    }

    private static String token() {
        Base64.Encoder encoder = Base64.getUrlEncoder().withoutPadding();
        String said = encoder.encodeToString("{\"alg\":\"HS256\"}".getBytes()) + "."
            + encoder.encodeToString(("{\"sub\":\"" + ADMIN + "\"}").getBytes());
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(KEY, "HmacSHA256"));
            return said + "." + encoder.encodeToString(mac.doFinal(said.getBytes()));
        } catch (GeneralSecurityException error) {
            throw new RuntimeException(error);
        }
    }

    /** Starts it, at the address of before if there was one. */
    public void start() {
        List<String> command = new ArrayList<>(List.of(
            System.getenv("MAGNETAR"), "standalone", "--data", directory.resolve("data").toString(), "--config", settings.toString()));
        if (hasTwo()) {
            command.addAll(List.of(
                "--set", "listeners=CLIENT://" + address + ",ADMIN://" + adminAddress,
                "--set", "listener.security.protocol.map=CLIENT:" + protocol + ",ADMIN:" + (authorizes ? "SASL_PLAINTEXT" : "PLAINTEXT")));
        } else
            command.addAll(List.of("--kafka", address));
        if (workers > 1)
            command.addAll(List.of("--workers", String.valueOf(workers)));
        Path log = directory.resolve("log");
        try {
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
            BufferedReader said = process.inputReader();
            for (String line = said.readLine(); line != null; line = said.readLine()) {
                if (line.startsWith("ready ")) {
                    String[] addresses = line.split("kafka=")[1].split(" ")[0].split(",");
                    address = addresses[0];
                    adminAddress = addresses[addresses.length - 1];
                    return;
                }
            }
            throw new IllegalStateException("the broker did not start: " + Files.readString(log));
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    public String address() {
        return address;
    }

    /** Where those come in who speak no TLS, and do not log in. */
    public String openAddress() {
        if (authorizes)
            throw new UnsupportedOperationException("between brokers nobody logs in: it " + INSIDES);
        return hasTwo() ? adminAddress : address;
    }

    /** Ends it; what it has kept is there when it starts again. */
    public void end() {
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

    /** Ends it, and takes its directory away. */
    public void stop() {
        end();
        if (!Files.exists(directory))
            return;
        try (Stream<Path> paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    /** Ends one of several workers, which is started again by itself; when a test has ended all, they stay away until {@link #startOne}. */
    void endOne(int id) {
        ended.add(id);
        if (ended.size() == workers)
            end();
        else
            worker(id).ifPresent(ProcessHandle::destroy);
    }

    void startOne(int id) {
        if (ended.size() == workers)
            start();
        ended.remove(id);
    }

    boolean isDown(int id) {
        return process == null || !process.isAlive() || workers > 1 && worker(id).isEmpty();
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
}
