// River under the benchmark: arguments and the JSON line. The scenarios are in scenarios.go.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

const payloadBytes = 100

// settings of one scenario and mode; those that a scenario has no use for are left out of the JSON line.
type settings struct {
	Batch               int `json:"batch,omitempty"`             // Jobs a call of InsertManyFast.
	Connections         int `json:"connections,omitempty"`       // Connections of the pool, and callers at once when enqueuing.
	Clients             int `json:"clients,omitempty"`           // River clients in the process.
	MaxWorkers          int `json:"max_workers,omitempty"`       // Per client.
	FetchCooldownMs     int `json:"fetch_cooldown_ms,omitempty"` // The least time between two fetches of a client.
	FetchPollIntervalMs int `json:"fetch_poll_interval_ms,omitempty"`
}

var known = map[string]settings{
	"enqueue batch100": {Batch: 100, Connections: 16},
	"enqueue bulk":     {Batch: 5000, Connections: 4},
	"drain batched":    {Clients: 2, MaxWorkers: 1000, FetchCooldownMs: 2, FetchPollIntervalMs: 20, Connections: 10},
	"single plain":     {Clients: 1, MaxWorkers: 32, FetchCooldownMs: 1, FetchPollIntervalMs: 20, Connections: 32},
	"latency batched":  {Clients: 1, MaxWorkers: 100, FetchCooldownMs: 1, FetchPollIntervalMs: 20, Connections: 10},
	"held batched":     {Clients: 2, MaxWorkers: 1000, FetchCooldownMs: 2, FetchPollIntervalMs: 20, Connections: 10},
}

// result is the last line on stdout.
type result struct {
	Peer                string   `json:"peer"`
	Version             string   `json:"version"`
	Mode                string   `json:"mode"`
	Scenario            string   `json:"scenario"`
	Jobs                int      `json:"jobs"`
	Seconds             float64  `json:"seconds"`
	JobsPerSecond       float64  `json:"jobs_per_second"`
	StartLatencyMsP50   *float64 `json:"start_latency_ms_p50"`
	StartLatencyMsP99   *float64 `json:"start_latency_ms_p99"`
	JobsPerSecondBefore *float64 `json:"jobs_per_second_before,omitempty"`
	JobsPerSecondDuring *float64 `json:"jobs_per_second_during,omitempty"`
	JobsEachSecond      []int64  `json:"jobs_each_second,omitempty"`
	PayloadBytes        int      `json:"payload_bytes"`
	Settings            string   `json:"settings"`
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}

func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "river: "+format+"\n", arguments...)
}

func run(ctx context.Context) error {
	url := flag.String("database-url", "", "a libpq URL of an empty database")
	scenario := flag.String("scenario", "", "enqueue, drain, single, latency or held")
	mode := flag.String("mode", "", "one that --modes lists for the scenario")
	jobs := flag.Int("jobs", 0, "how many jobs")
	rate := flag.Float64("rate", 100, "latency: jobs a second")
	seconds := flag.Float64("seconds", 10, "latency: for how long")
	flag.Parse()
	use, ok := known[*scenario+" "+*mode]
	switch {
	case *url == "":
		return fmt.Errorf("--database-url is missing")
	case !ok:
		return fmt.Errorf("--scenario %s --mode %s: not one of those that --modes lists", *scenario, *mode)
	case *scenario != "latency" && *jobs <= 0:
		return fmt.Errorf("--jobs must be a whole number above 0")
	}
	if other := os.Getenv("PEER_SETTINGS"); other != "" {
		if err := json.Unmarshal([]byte(other), &use); err != nil {
			return fmt.Errorf("PEER_SETTINGS: %w", err)
		}
	}

	bench, err := open(ctx, *url, use)
	if err != nil {
		return err
	}
	defer bench.pool.Close()

	out := result{Peer: "river", Version: versionOf("github.com/riverqueue/river"), Mode: *mode, Scenario: *scenario, Jobs: *jobs,
		PayloadBytes: payloadBytes}
	switch *scenario {
	case "enqueue":
		err = bench.measureEnqueue(ctx, *jobs, &out)
	case "latency":
		out.Jobs = int(*rate * *seconds)
		err = bench.measureLatency(ctx, *rate, out.Jobs, &out)
	default:
		err = bench.measureDrain(ctx, *jobs, *scenario == "held", &out)
	}
	if err != nil {
		return err
	}
	described, err := json.Marshal(use)
	if err != nil {
		return err
	}
	out.Settings = string(described)
	return json.NewEncoder(os.Stdout).Encode(out)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "river: %v\n", err)
		os.Exit(1)
	}
}
