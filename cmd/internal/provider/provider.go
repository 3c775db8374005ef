// Package provider makes what delivers from the settings.
package provider

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/demo"
	httpprovider "github.com/notifyq/notifyq/providers/http"
	"github.com/notifyq/notifyq/providers/smtp"
)

// Set is the providers of a worker.
type Set struct {
	// Channels is for notifyq.WorkerConfig.
	Channels map[notifyq.Channel]notifyq.ProviderConfig
	// Unserved are the channels of the settings that the provider does not serve. Their jobs wait for another worker.
	Unserved []notifyq.Channel

	idle interface{ CloseIdleConnections() } // nil without connections that are kept
}

// Close closes what is kept open. Nothing may be delivered after it.
func (s Set) Close() {
	if s.idle != nil {
		s.idle.CloseIdleConnections()
	}
}

// New makes the provider that the settings name, once for all channels. The mock and the http provider serve every
// channel, and smtp serves EMAIL. The pool is the mock's.
func New(s settings.Settings, pool *pgxpool.Pool, logger *slog.Logger) (Set, error) {
	set := Set{Channels: make(map[notifyq.Channel]notifyq.ProviderConfig, len(s.Channels))}
	made, err := set.make(s, pool, logger)
	if err != nil {
		return Set{}, err
	}
	for _, channel := range s.Channels {
		if s.Provider == settings.ProviderSMTP && channel != notifyq.ChannelEmail {
			set.Unserved = append(set.Unserved, channel)
			continue
		}
		set.Channels[channel] = notifyq.ProviderConfig{Provider: made, Timeout: s.ProviderTimeout}
	}
	if len(set.Channels) == 0 {
		return Set{}, errors.New("CHANNELS: must hold EMAIL with PROVIDER=smtp, which serves nothing else")
	}
	return set, nil
}

// make's errors come from configurations that Load has checked already, and hold no value.
func (set *Set) make(s settings.Settings, pool *pgxpool.Pool, logger *slog.Logger) (notifyq.Provider, error) {
	switch s.Provider {
	case settings.ProviderMock:
		mock, err := demo.NewProvider(pool, demo.ProviderConfig{
			Schema: s.DatabaseSchema, FailureRate: s.MockFailureRate, Logger: logger,
		})
		if err != nil {
			return nil, fmt.Errorf("PROVIDER: %w", err)
		}
		return mock, nil
	case settings.ProviderSMTP:
		cfg, err := smtp.ParseURL(s.SMTPURL)
		if err != nil {
			return nil, fmt.Errorf("SMTP_URL: %w", err)
		}
		cfg.From = s.SMTPFrom
		mail, err := smtp.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("SMTP_FROM: %w", err)
		}
		return mail, nil
	case settings.ProviderHTTP:
		gateway, err := httpprovider.New(httpprovider.Config{URL: s.ProviderURL, MaxIdle: s.WorkerConcurrency})
		if err != nil {
			return nil, fmt.Errorf("PROVIDER_URL: %w", err)
		}
		set.idle = gateway
		return gateway, nil
	default:
		return nil, errors.New("PROVIDER: must be mock, smtp or http")
	}
}
