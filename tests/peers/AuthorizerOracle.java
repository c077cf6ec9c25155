import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's StandardAuthorizer. Reads lines whose parts are separated by tabs; all but names are codes of the protocol:
 *
 *   new     super.users  allow.everyone.if.no.acl.found      forgets all ACLs
 *   acl     type name pattern principal host operation permission
 *   ask     principal-type principal-name host operation type name     answers 1 (allowed) or 0
 *   some    principal-type principal-name host operation type          the same, for any resource of the type
 *   filter  type name pattern principal host operation permission      answers how many ACLs match; ~ is null
 *
 * Each answer is a line.
 */
class AuthorizerOracle {
    static StandardAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            switch (parts[0]) {
                case "new" -> begin(parts[1], parts[2]);
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(type(parts[1]), parts[2],
                    pattern(parts[3]), parts[4], parts[5], operation(parts[6]), permission(parts[7])));
                case "ask" -> out.append(allowed(authorizer.authorize(context(parts), List.of(new Action(
                    operation(parts[4]), new ResourcePattern(type(parts[5]), parts[6], PatternType.LITERAL), 1, true, true))).get(0)));
                case "some" -> out.append(allowed(authorizer.authorizeByResourceType(context(parts),
                    operation(parts[4]), type(parts[5]))));
                case "filter" -> out.append(count(parts)).append('\n');
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(out);
    }

    static void begin(String superUsers, String everyone) {
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("super.users", superUsers, "allow.everyone.if.no.acl.found", everyone));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
    }

    static int count(String[] parts) {
        var filter = new AclBindingFilter(
            new ResourcePatternFilter(type(parts[1]), text(parts[2]), pattern(parts[3])),
            new AccessControlEntryFilter(text(parts[4]), text(parts[5]), operation(parts[6]), permission(parts[7])));
        int count = 0;
        for (var found : authorizer.acls(filter)) count++;
        return count;
    }

    static String allowed(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "1\n" : "0\n";
    }

    static String text(String part) {
        return part.equals("~") ? null : part;
    }

    static ResourceType type(String code) {
        return ResourceType.fromCode(Byte.parseByte(code));
    }

    static PatternType pattern(String code) {
        return PatternType.fromCode(Byte.parseByte(code));
    }

    static AclOperation operation(String code) {
        return AclOperation.fromCode(Byte.parseByte(code));
    }

    static AclPermissionType permission(String code) {
        return AclPermissionType.fromCode(Byte.parseByte(code));
    }

    static AuthorizableRequestContext context(String[] parts) throws Exception {
        var principal = new KafkaPrincipal(parts[1], parts[2]);
        var address = InetAddress.getByName(parts[3]);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return principal; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 0; }
            public int requestVersion() { return 0; }
            public String clientId() { return "test"; }
            public int correlationId() { return 0; }
        };
    }
}
