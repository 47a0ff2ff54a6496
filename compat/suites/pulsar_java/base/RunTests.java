import java.util.Arrays;
import java.util.List;
import org.testng.IConfigurationListener;
import org.testng.ITestListener;
import org.testng.ITestResult;
import org.testng.TestNG;
import org.testng.xml.XmlClass;
import org.testng.xml.XmlInclude;
import org.testng.xml.XmlSuite;
import org.testng.xml.XmlTest;

/**
 * Runs test classes of TestNG one after the other and says of each test, on a line of its own: outcome, a tab, its name, a tab, why.
 *   RunTests CLASS...               all of them
 *   RunTests CLASS#METHOD,METHOD...   only these
 */
public class RunTests implements ITestListener, IConfigurationListener {
    private static final String INSIDES = "asks for the broker's insides";

    public static void main(String[] names) throws Exception {
        XmlSuite suite = new XmlSuite();
        XmlTest test = new XmlTest(suite);
        for (String name : names) {
            XmlClass found = new XmlClass(name.split("#")[0]);
            if (name.contains("#"))
                found.setIncludedMethods(Arrays.stream(name.split("#")[1].split(",")).map(XmlInclude::new).toList());
            test.getXmlClasses().add(found);
        }
        TestNG tests = new TestNG(false);
        tests.setXmlSuites(List.of(suite));
        tests.setVerbose(0);
        tests.addListener(new RunTests());
        tests.setOutputDirectory(System.getProperty("java.io.tmpdir") + "/testng");
        tests.run();
        System.out.println("done");
        System.out.flush();
        System.exit(0); // clients' threads would keep it going
    }

    @Override
    public void onTestSuccess(ITestResult result) {
        say("passed", result);
    }

    @Override
    public void onTestFailure(ITestResult result) {
        Throwable why = result.getThrowable(); // what the broker's insides are asked for by cannot be linked, or is null
        boolean inside = why instanceof LinkageError || String.valueOf(why).contains(INSIDES);
        say(inside ? "skipped" : "failed", result);
    }

    @Override
    public void onTestSkipped(ITestResult result) {
        say("skipped", result);
    }

    @Override
    public void onConfigurationFailure(ITestResult result) {
        System.err.println("could not be set up: " + result.getThrowable());
        result.getThrowable().printStackTrace();
    }

    private static void say(String outcome, ITestResult result) {
        Throwable why = result.getThrowable();
        String with = result.getParameters().length == 0 ? "" : Arrays.deepToString(result.getParameters());
        String name = result.getMethod().getMethodName() + with;
        System.out.println((outcome + "\t" + line(name, 200) + "\t" + (why == null ? "" : line(why.toString(), 300))));
        System.out.flush();
    }

    private static String line(String text, int most) {
        String one = text.replaceAll("\\s+", " ").replaceAll("@[0-9a-f]{4,}", "");
        return one.length() > most ? one.substring(0, most) : one;
    }
}
