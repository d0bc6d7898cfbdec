package capture

import (
	"math/rand/v2"
	"regexp"
	"testing"
)

// Addresses, ranges, hashes and Services are replaced wherever they stand; ports and words stay.
func TestAnonymizeTexts(t *testing.T) {
	texts := []string{
		`-A KUBE-SVC-NPX46M4PTMTKRN6Y ! -s 10.244.0.0/16 -d 10.96.0.1/32 --comment "prod/pay:https cluster IP" --dport 443 -j KUBE-MARK-MASQ`,
		`[fd00:10::1]:443 tcp: missing endpoints 10.244.1.5:8080, [fd00:10:1::5]:8080`,
		`service-2QRHZV4L-prod/pay/tcp/admin: goto endpoint-573J25N3-prod/pay/tcp/admin__10.244.1.5/6443`, `fe80::1 ::/0 0.0.0.0/0 prod/pay KUBE-EXTERNAL-SERVICES`,
	}
	const addr, six = `\d+\.\d+\.\d+\.\d+`, `[0-9a-f:]+`
	want := []string{
		`^-A KUBE-SVC-CHAIN-\d ! -s ` + addr + `/16 -d ` + addr + `/32 --comment "ns-1/svc-1:https cluster IP" --dport 443 -j KUBE-MARK-MASQ$`,
		`^\[` + six + `\]:443 tcp: missing endpoints ` + addr + `:8080, \[` + six + `\]:8080$`,
		`^service-CHAIN-\d-ns-1/svc-1/tcp/port-1: goto endpoint-CHAIN-\d-ns-1/svc-1/tcp/port-1__` + addr + `/6443$`, `^fe80::1 ::/0 0.0.0.0/0 ns-1/svc-1 KUBE-EXTERNAL-SERVICES$`,
	}
	got := make([]string, len(texts))
	if err := AnonymizeTexts(rand.NewChaCha8([32]byte{1}), func(replace func(string) string) {
		for i, text := range texts {
			got[i] = replace(text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i := range texts {
		if !regexp.MustCompile(want[i]).MatchString(got[i]) || regexp.MustCompile(`10\.(244|96)\.|fd00:10|prod|pay`).MatchString(got[i]) {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
}
