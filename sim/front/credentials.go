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

// Credentials are by what a client knows a front, and a front its clients. They are for one process: nothing is kept.
type Credentials struct {
	// Token that requests have to bear.
	Token string
	// CA is the front's certificate in PEM, which it signed itself.
	CA          []byte
	certificate tls.Certificate
}

// NewCredentials are for a front that is reached at some addresses or names.
func NewCredentials(hosts ...string) (*Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("api front: key: %w", err)
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
		return nil, fmt.Errorf("api front: certificate: %w", err)
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
