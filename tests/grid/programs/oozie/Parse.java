import java.io.FileReader;
import java.io.Reader;
import java.util.Properties;
import org.apache.oozie.service.LiteWorkflowStoreService;
import org.apache.oozie.service.SchemaService;
import org.apache.oozie.service.Services;
import org.apache.oozie.util.XConfiguration;
import org.apache.oozie.workflow.WorkflowException;
import org.apache.oozie.workflow.lite.LiteWorkflowApp;
import org.apache.oozie.workflow.lite.LiteWorkflowAppParser;

import org.apache.oozie.workflow.lite.NodeDef;

/** Parses workflows as Oozie's server does: FOLDER NODE… per line of stdin; a line of what became of each on stdout. */
public class Parse {
    public static void main(String[] args) throws Exception {
        Services services = new Services();
        services.init();
        LiteWorkflowAppParser parser = new LiteWorkflowAppParser(
            services.get(SchemaService.class).getSchema(SchemaService.SchemaName.WORKFLOW),
            LiteWorkflowStoreService.LiteControlNodeHandler.class,
            LiteWorkflowStoreService.LiteDecisionHandler.class,
            LiteWorkflowStoreService.LiteActionHandler.class);
        java.util.Scanner in = new java.util.Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            System.out.println("PARSED " + parsed(parser, words));
        }
        System.exit(0);
    }

    static String parsed(LiteWorkflowAppParser parser, String[] words) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(words[0] + "/job.properties")) {
            properties.load(reader);
        }
        try (Reader reader = new FileReader(words[0] + "/workflow.xml")) {
            LiteWorkflowApp app = parser.validateAndParse(reader, new XConfiguration(properties));
            StringBuilder found = new StringBuilder();
            for (int i = 1; i < words.length; i++) {
                NodeDef node = app.getNode(words[i]);
                found.append(words[i]).append("=").append(node == null ? "none" : node.getTransitions()).append(";");
            }
            return found.toString();
        } catch (WorkflowException error) {
            return error.getErrorCode() + ": " + error.getMessage().replace("\n", " ");
        }
    }
}
