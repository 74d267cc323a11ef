package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Client asks the agent of this node.
type Client struct {
	Socket string // of the agent
	// Patience is for how long Grant asks again while the agent is away or refuses for
	// the moment; 0 means DefaultPatience.
	Patience time.Duration
	// Pause is the first pause before asking again, later ones are longer; 0 means firstPause.
	Pause time.Duration
}

// DefaultPatience is longer than an agent takes to be upgraded, and shorter than a
// kubelet waits for its runtime (runtimeRequestTimeout is two minutes by default).
const DefaultPatience = 90 * time.Second

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
	maxAnswer  = 1 << 20 // bytes
)

// Grant asks what container c may have. A refusal is a *Refusal. While the agent does
// not answer, or refuses for the moment only, Grant waits; the error then says for what.
func (c *Client) Grant(ctx context.Context, who Container) (Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, or(c.Patience, DefaultPatience))
	defer cancel()
	client := c.http()
	defer client.CloseIdleConnections()
	for pause := or(c.Pause, firstPause); ; pause = min(2*pause, lastPause) {
		grant, err := ask(ctx, client, who)
		var refusal *Refusal
		if err == nil || errors.As(err, &refusal) && !refusal.Temporary {
			return grant, err
		}
		select {
		case <-ctx.Done():
			return Grant{}, fmt.Errorf("the node's qgpu-agent gave no answer for container %s of pod %s/%s in time; the last was: %w",
				who.Name, who.PodNamespace, who.PodName, err)
		case <-time.After(pause):
		}
	}
}

func or(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

func (c *Client) http() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		},
	}}
}

// ask asks once.
func ask(ctx context.Context, client *http.Client, who Container) (Grant, error) {
	question, err := json.Marshal(who)
	if err != nil {
		return Grant{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+GrantPath, bytes.NewReader(question))
	if err != nil {
		return Grant{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return Grant{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Grant{}, fmt.Errorf("read the agent's answer: %w", err)
	}
	return parseAnswer(response.StatusCode, body)
}

// parseAnswer reads what the agent said. What is no answer of an agent's is temporary.
func parseAnswer(status int, body []byte) (Grant, error) {
	if status == http.StatusOK {
		var grant Grant
		if err := json.Unmarshal(body, &grant); err != nil {
			return Grant{}, fmt.Errorf("the agent's answer is damaged: %w", err)
		}
		return grant, nil
	}
	var refusal Refusal
	if err := json.Unmarshal(body, &refusal); err != nil || refusal.Reason == "" {
		return Grant{}, fmt.Errorf("the agent answered with status %d and no reason", status)
	}
	return Grant{}, &refusal
}
