import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.Arrays;
import java.util.Set;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs a test class of JUnit and says of each test, on a line of its own: outcome, a tab, its name, a tab, why.
 *   RunTests CLASS                   all of it
 *   RunTests CLASS#METHOD,METHOD...  only these
 */
public class RunTests implements TestExecutionListener {
    private static final String INSIDES = "asks for the broker's insides";

    public static void main(String[] names) throws Exception {
        String[] parts = names[0].split("#");
        Set<String> methods = parts.length > 1 ? Set.copyOf(Arrays.asList(parts[1].split(","))) : Set.of();
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(selectClass(parts[0]))
            .filters((PostDiscoveryFilter) test -> {
                if (methods.isEmpty() || !(test.getSource().orElse(null) instanceof MethodSource method))
                    return FilterResult.included("");
                return FilterResult.includedIf(methods.contains(method.getMethodName()));
            })
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.default", System.getProperty("test.seconds", "120") + " s")
            .build();
        LauncherFactory.create().execute(request, new RunTests());
        System.out.println("done");
        System.out.flush();
        System.exit(0); // clients' threads would keep it going
    }

    @Override
    public void executionSkipped(TestIdentifier test, String why) {
        if (test.isTest() && !why.startsWith("the same"))
            say("skipped", test, why);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        Throwable why = result.getThrowable().orElse(null);
        if (why != null && System.getenv("SHOW") != null)
            why.printStackTrace();
        if (test.isTest() || why != null)
            say(outcome(result.getStatus(), why), test, why == null ? "" : why.toString());
    }

    private static String outcome(TestExecutionResult.Status status, Throwable why) {
        if (status == TestExecutionResult.Status.SUCCESSFUL)
            return "passed";
        for (Throwable each = why; each != null; each = each.getCause()) {
            if (each instanceof LinkageError || String.valueOf(each.getMessage()).contains(INSIDES))
                return "skipped";
        }
        return status == TestExecutionResult.Status.ABORTED ? "skipped" : "failed";
    }

    private static void say(String outcome, TestIdentifier test, String why) {
        String name = test.getSource().filter(MethodSource.class::isInstance).map(each -> ((MethodSource) each).getMethodName()).orElse("-");
        System.out.println(outcome + "\t" + name + "\t" + line(why, 300));
        System.out.flush();
    }

    private static String line(String text, int most) {
        String one = text.replaceAll("\\s+", " ").replaceAll("@[0-9a-f]{4,}", "");
        return one.length() > most ? one.substring(0, most) : one;
    }
}
