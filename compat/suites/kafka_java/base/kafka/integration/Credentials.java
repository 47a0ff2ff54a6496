package kafka.integration;

import static org.mockito.Mockito.mock;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import kafka.server.QuorumTestHarness;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.plain.PlainLoginModule;
import org.apache.kafka.common.test.junit.Served;
import org.apache.kafka.metadata.storage.Formatter;

/** What brokers of tests that log in have to know, as a broker of ours takes it. */
final class Credentials {
    private static final Pattern SCRAM = Pattern.compile("(SCRAM-[A-Z0-9-]+)=\\[name=([^,]+),password=([^,\\]]+).*");
    private static final List<String> NOT_SERVED = List.of("GSSAPI", "OAUTHBEARER");
    private static final int ITERATIONS = 4096;

    private Credentials() { }

    /** Returns settings in the place of a broker's that are Java's: stores as PKCS12, and the users of PLAIN. */
    static Map<String, Object> settings(Map<String, Object> given) {
        String mechanisms = String.valueOf(given.getOrDefault("sasl.enabled.mechanisms", ""));
        if (NOT_SERVED.stream().anyMatch(mechanisms::contains))
            throw new UnsupportedOperationException(mechanisms + ": Kerberos, or tokens that nobody signed; it " + Served.INSIDES);
        Map<String, Object> settings = new HashMap<>();
        for (String store : List.of("ssl.keystore", "ssl.truststore")) {
            if (given.get(store + ".location") != null) {
                settings.put(store + ".location", asPkcs12(given, store));
                settings.put(store + ".type", "PKCS12");
            }
        }
        if (given.containsKey("ssl.key.password") && given.get("ssl.keystore.location") != null)
            settings.put("ssl.key.password", given.get("ssl.keystore.password"));
        String users = plainUsers();
        if (!users.isEmpty() && mechanisms.contains("PLAIN"))
            settings.put("listener.name.client.plain.sasl.jaas.config", PlainLoginModule.class.getName() + " required " + users + ";");
        return settings;
    }

    private static String asPkcs12(Map<String, Object> given, String store) {
        char[] password = secret(given.get(store + ".password"));
        char[] ofKeys = given.containsKey("ssl.key.password") ? secret(given.get("ssl.key.password")) : password;
        Path from = Path.of(String.valueOf(given.get(store + ".location")));
        Path to = from.resolveSibling(from.getFileName() + ".p12");
        try (InputStream in = Files.newInputStream(from); OutputStream out = Files.newOutputStream(to)) {
            KeyStore java = KeyStore.getInstance(String.valueOf(given.getOrDefault(store + ".type", "JKS")));
            KeyStore made = KeyStore.getInstance("PKCS12");
            java.load(in, password);
            made.load(null, null);
            for (String name : Collections.list(java.aliases())) {
                if (java.isKeyEntry(name))
                    made.setKeyEntry(name, java.getKey(name, ofKeys), password, java.getCertificateChain(name));
                else
                    made.setCertificateEntry(name, java.getCertificate(name));
            }
            made.store(out, password);
            return to.toString();
        } catch (IOException | GeneralSecurityException error) {
            throw new RuntimeException(error);
        }
    }

    private static char[] secret(Object password) {
        return (password instanceof Password secret ? secret.value() : String.valueOf(password)).toCharArray();
    }

    /** Of the JAAS file that the test has written for its brokers. */
    private static String plainUsers() {
        AppConfigurationEntry[] entries;
        try {
            Configuration.setConfiguration(null); // that of the test before
            entries = Configuration.getConfiguration().getAppConfigurationEntry("KafkaServer");
        } catch (SecurityException error) {
            return "";
        }
        return entries == null ? "" : Arrays.stream(entries)
            .filter(each -> each.getLoginModuleName().endsWith("PlainLoginModule"))
            .flatMap(each -> each.getOptions().entrySet().stream())
            .filter(each -> each.getKey().startsWith("user_"))
            .map(each -> each.getKey() + "=\"" + each.getValue() + "\"")
            .distinct()
            .collect(Collectors.joining(" "));
    }

    /** Returns users of SCRAM that are there from the first start on. */
    static List<UserScramCredentialAlteration> ofFormatter(QuorumTestHarness test) {
        List<String> told = new ArrayList<>();
        test.addFormatterSettings(mock(Formatter.class, call -> {
            if (call.getMethod().getName().equals("setScramArguments"))
                told.addAll(call.getArgument(0));
            return call.getMock();
        }));
        List<UserScramCredentialAlteration> users = new ArrayList<>();
        for (String each : told) {
            Matcher user = SCRAM.matcher(each);
            if (!user.matches())
                throw new IllegalArgumentException(each);
            ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.fromMechanismName(user.group(1)), ITERATIONS);
            users.add(new UserScramCredentialUpsertion(user.group(2), info, user.group(3)));
        }
        return users;
    }
}
