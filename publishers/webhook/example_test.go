package webhook_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/notifyq/notifyq/publishers/webhook"
)

// A publisher for one receiver in the company's own network, in the middle of a change of secrets.
func Example() {
	publisher, err := webhook.New(webhook.Config{
		URL:        "https://10.1.2.3/webhooks",
		Secrets:    []string{"whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3", "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"},
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(publisher)
	// Output: default (https://10.1.2.3)
}
