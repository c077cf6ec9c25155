// SASL and TLS: with three more arguments (mechanism, user and password), and a fourth for the authority of TLS. The
// password of OAUTHBEARER is a token. For the mechanism SSL, the user is the file of a key and its certificate.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string) sasl.Mechanism {
	auth := scram.Auth{User: user, Pass: password}
	switch name {
	case "OAUTHBEARER":
		return oauth.Auth{Token: password}.AsMechanism()
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return auth.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return auth.AsSha512Mechanism()
	}
	check(false, "unknown mechanism %q", name)
	return nil
}

func securityOptions(arguments []string) (right, wrong []kgo.Opt) {
	name, user, password := arguments[0], arguments[1], arguments[2]
	if name != "SSL" {
		right = []kgo.Opt{kgo.SASL(mechanism(name, user, password))}
		wrong = []kgo.Opt{kgo.SASL(mechanism(name, user, "not "+password))}
	}
	if len(arguments) > 3 {
		authorities := x509.NewCertPool()
		check(authorities.AppendCertsFromPEM(must(os.ReadFile(arguments[3]))), "no certificate in %s", arguments[3])
		encrypted := &tls.Config{RootCAs: authorities}
		wrong = append(wrong, kgo.DialTLSConfig(encrypted.Clone()))
		if name == "SSL" {
			encrypted.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(user, user))}
		}
		right = append(right, kgo.DialTLSConfig(encrypted))
	}
	return right, wrong
}

func secured(ctx context.Context, address, topic string, arguments []string) {
	right, wrong := securityOptions(arguments)
	common = right
	produce(ctx, address, topic, kgo.AllowAutoTopicCreation())
	consume(ctx, address, topic, 0, kgo.ReadCommitted())
	common = wrong
	refused := client(address, kgo.RequestRetries(0))
	defer refused.Close()
	err := refused.Ping(ctx)
	if arguments[0] == "SSL" {
		check(err != nil, "a client without a certificate is served")
	} else {
		check(errors.Is(err, kerr.SaslAuthenticationFailed), "wrong password: %v", err)
	}
}
