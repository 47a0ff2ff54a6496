// pulsar-admin of Pulsar's release, one command a line, so that one JVM serves them all. A line in is a JSON list of what
// would stand behind `bin/pulsar-admin`; a line out is {"ok", "out"}.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

public class PulsarAdmin extends PulsarAdminTool {
    PulsarAdmin(Properties settings) throws Exception { super(settings); }

    boolean does(String[] command) { return run(command); }

    public static void main(String[] arguments) throws Exception {
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        var json = new ObjectMapper();
        var settings = new Properties();
        settings.put("webServiceUrl", arguments[0]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            var said = new ByteArrayOutputStream();
            var to = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(to);
            System.setErr(to);
            boolean ok = false;
            try {
                ok = new PulsarAdmin(settings).does(json.readValue(line, String[].class));
            } catch (Throwable error) {
                to.println(error);
            }
            to.flush();
            out.println(json.createObjectNode().put("ok", ok).put("out", said.toString(StandardCharsets.UTF_8)));
        }
        System.exit(0);
    }
}
