package front

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Credentials authenticate a fake API server and its clients to each other. They are for one process and not stored.
type Credentials struct {
	// Token is the bearer token that requests need.
	Token string
	// CA is the server's self-signed certificate in PEM.
	CA          []byte
	certificate tls.Certificate
}

// NewCredentials returns credentials for a server with some addresses or names.
func NewCredentials(hosts ...string) (*Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("fake API server: key: %w", err)
	}
	now := time.Now()
	about := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "synclab serve"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			about.IPAddresses = append(about.IPAddresses, ip)
		} else {
			about.DNSNames = append(about.DNSNames, host)
		}
	}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("fake API server: certificate: %w", err)
	}
	return &Credentials{
		Token: rand.Text(), CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		certificate: tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key},
	}, nil
}

// Secure encrypts the connections of a listener.
func (c *Credentials) Secure(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{c.certificate}, MinVersion: tls.VersionTLS12})
}
