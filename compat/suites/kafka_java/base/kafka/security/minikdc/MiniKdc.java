package kafka.security.minikdc;

import java.io.File;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.test.junit.Served;

/** Takes the place of a server for Kerberos, which tests of other logins have to find as well: there is none. */
public class MiniKdc {
    public MiniKdc(Properties config, File workDir) { }

    public static Properties createConfig() {
        return new Properties();
    }

    public void start() {
        throw new UnsupportedOperationException("Kerberos; it " + Served.INSIDES);
    }

    public void stop() { }

    public void createPrincipal(File keytab, List<String> principals) { }
}
