import java.util.Base64;
import java.util.Scanner;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/** Encodes and decodes passwords as Apache Kafka 3.9: a line is a word, the parameters, and a text in base 64. */
public class PasswordOracle {
    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            String factory = words[2].equals("-") ? null : words[2];
            PasswordEncoder encoder = PasswordEncoder.encrypting(new Password(decoded(words[1])), factory, words[3],
                    Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            String text = decoded(words[6]);
            String result;
            try {
                result = words[0].equals("encode") ? encoder.encode(new Password(text)) : encoder.decode(text).value();
            } catch (Exception error) {
                result = "refused";
            }
            System.out.println(Base64.getEncoder().encodeToString(result.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }
}
