package smtp_test

import (
	"fmt"
	"log"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/providers/smtp"
)

// A provider for the EMAIL channel, from the setting SMTP_URL and a sender.
func Example() {
	cfg, err := smtp.ParseURL("smtp://mailer:s3cret@mail.example.com:587")
	if err != nil {
		log.Fatal(err)
	}
	cfg.From = "Shop <no-reply@shop.example>"
	email, err := smtp.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	providers := map[notifyq.Channel]notifyq.Provider{notifyq.ChannelEmail: email}

	fmt.Println(providers[notifyq.ChannelEmail])
	// Output: smtp://mail.example.com:587?tls=starttls
}
