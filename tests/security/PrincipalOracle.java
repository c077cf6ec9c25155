import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Reads lines of words in base 64: rules and a subject, or a certificate alone, or a default realm, rules in lines and a
 * Kerberos principal. Answers a line for a line, in base 64: the name of the user ("none" without a rule that matches,
 * "invalid" for rules that Kafka refuses), or the subject.
 */
class PrincipalOracle {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var out = new PrintWriter(new OutputStreamWriter(System.out, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer = switch (words.length) {
                case 1 -> subject(decode(words[0]));
                case 2 -> name(text(words[0]), text(words[1]));
                default -> kerberosName(text(words[0]), text(words[1]), text(words[2]));
            };
            out.println(Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)));
        }
        out.flush();
    }

    static byte[] decode(String word) {
        return Base64.getDecoder().decode(word);
    }

    static String text(String word) {
        return new String(decode(word), StandardCharsets.UTF_8);
    }

    static String subject(byte[] certificate) throws Exception {
        var parsed = CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(certificate));
        return ((X509Certificate) parsed).getSubjectX500Principal().getName();
    }

    static String kerberosName(String realm, String rules, String principal) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules(realm, List.of(rules.split("\n", -1)));
        } catch (RuntimeException e) {
            return "invalid";
        }
        try {
            return "name " + namer.shortName(KerberosName.parse(principal));
        } catch (java.io.IOException | IllegalArgumentException e) {
            return "none";
        } catch (RuntimeException e) {
            return "error";
        }
    }

    static String name(String rules, String subject) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (RuntimeException e) {
            return "invalid";
        }
        try {
            return "name " + mapper.getName(subject);
        } catch (java.io.IOException e) {
            return "none";
        } catch (RuntimeException e) {
            return "error";
        }
    }
}
