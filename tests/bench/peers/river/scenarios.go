package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// noop is a job whose arguments are payloadBytes long as JSON.
type noop struct {
	ID  int    `json:"id"`
	Pad string `json:"pad"`
}

func (noop) Kind() string { return "noop" }

func payload(id int) noop {
	empty := len(fmt.Sprintf(`{"id":%d,"pad":""}`, id))
	return noop{ID: id, Pad: strings.Repeat("x", payloadBytes-empty)}
}

type worker struct {
	river.WorkerDefaults[noop]
	onJob func(id int)
}

func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	w.onJob(job.Args.ID)
	return nil
}

type bench struct {
	pool *pgxpool.Pool
	use  settings
}

// open connects and makes River's schema.
func open(ctx context.Context, url string, use settings) (*bench, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(use.Connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: logger})
	if err != nil {
		pool.Close()
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		pool.Close()
		return nil, err
	}
	return &bench{pool: pool, use: use}, nil
}

// client makes one that works if onJob is given, and one that only inserts if not.
func (b *bench) client(onJob func(id int)) (*river.Client[pgx.Tx], error) {
	config := &river.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if onJob != nil {
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, &worker{onJob: onJob})
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: b.use.MaxWorkers}}
		config.FetchCooldown = time.Duration(b.use.FetchCooldownMs) * time.Millisecond
		config.FetchPollInterval = time.Duration(b.use.FetchPollIntervalMs) * time.Millisecond
	}
	return river.NewClient(riverpgxv5.New(b.pool), config)
}

// enqueue inserts by COPY, `batch` jobs a call, with so many callers at once.
func (b *bench) enqueue(ctx context.Context, jobs, batch, callers int) (time.Duration, error) {
	client, err := b.client(nil)
	if err != nil {
		return 0, err
	}
	var (
		next   atomic.Int64
		failed = make(chan error, callers)
		group  sync.WaitGroup
	)
	started := time.Now()
	for range callers {
		group.Go(func() {
			for {
				first := int(next.Add(int64(batch))) - batch
				if first >= jobs {
					return
				}
				params := make([]river.InsertManyParams, min(batch, jobs-first))
				for i := range params {
					params[i].Args = payload(first + i)
				}
				if _, err := client.InsertManyFast(ctx, params); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(started)
	select {
	case err := <-failed:
		return 0, err
	default:
		return took, nil
	}
}

// mark tells the benchmark on stdout when the measured time begins and ends, so that it can tell what that costs.
func mark(word string) {
	fmt.Println(word)
}

func (b *bench) count(ctx context.Context, where string) (int, error) {
	var n int
	err := b.pool.QueryRow(ctx, "select count(*) from river_job where "+where).Scan(&n)
	return n, err
}

func (b *bench) measureEnqueue(ctx context.Context, jobs int, out *result) error {
	if _, err := b.enqueue(ctx, b.use.Connections, 1, b.use.Connections); err != nil { // Connections are there before the time starts.
		return err
	}
	mark("measuring")
	took, err := b.enqueue(ctx, jobs, b.use.Batch, b.use.Connections)
	if err != nil {
		return err
	}
	mark("measured")
	there, err := b.count(ctx, "state = 'available'")
	if err != nil {
		return err
	}
	if there != jobs+b.use.Connections {
		return fmt.Errorf("%d jobs are in the database, not %d", there, jobs+b.use.Connections)
	}
	out.Seconds = took.Seconds()
	out.JobsPerSecond = float64(jobs) / out.Seconds
	return nil
}

// hold opens a transaction with a snapshot and an id: it holds back vacuum as a long report and as a long write both do.
func (b *bench) hold(ctx context.Context) (release func() error, err error) {
	conn, err := pgx.ConnectConfig(ctx, b.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		return nil, err
	}
	return func() error {
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		return conn.Close(ctx)
	}, nil
}

// measureDrain is drain, single and held. The time ends with the last event of a completed job, which River sends when its
// completer has written the batch.
func (b *bench) measureDrain(ctx context.Context, jobs int, held bool, out *result) error {
	if _, err := b.enqueue(ctx, jobs, 5000, 2); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, "vacuum analyze river_job"); err != nil {
		return err
	}
	progress("%d jobs enqueued", jobs)

	var (
		clients   []*river.Client[pgx.Tx]
		completed atomic.Int64
		all       = make(chan time.Time, 1)
		third     = make(chan struct{}, 1)
	)
	for range b.use.Clients {
		client, err := b.client(func(int) {})
		if err != nil {
			return err
		}
		// Large enough for every job, so that no event is dropped.
		events, cancel := client.SubscribeConfig(
			&river.SubscribeConfig{ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
		defer cancel()
		go func() {
			for range events {
				switch int(completed.Add(1)) {
				case jobs:
					all <- time.Now()
				case jobs / 3:
					third <- struct{}{}
				}
			}
		}()
		clients = append(clients, client)
	}

	var (
		release      func() error
		heldAt       time.Time
		doneWhenHeld int64
		last         int64
		ended        time.Time
	)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	mark("measuring")
	started := time.Now()
	for _, client := range clients {
		if err := client.Start(ctx); err != nil {
			return err
		}
	}
	for ended.IsZero() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ended = <-all:
		case <-third:
			if held {
				var err error
				if release, err = b.hold(ctx); err != nil {
					return err
				}
				heldAt, doneWhenHeld = time.Now(), completed.Load()
				progress("a transaction is held open after %d jobs", doneWhenHeld)
			}
		case <-second.C:
			now := completed.Load()
			out.JobsEachSecond = append(out.JobsEachSecond, now-last)
			last = now
			progress("%d of %d", now, jobs)
		}
	}
	mark("measured")
	for _, client := range clients {
		if err := client.Stop(ctx); err != nil {
			return err
		}
	}
	if left, err := b.count(ctx, "state <> 'completed'"); err != nil {
		return err
	} else if left != 0 {
		return fmt.Errorf("%d jobs are unfinished", left)
	}

	out.Seconds = ended.Sub(started).Seconds()
	out.JobsPerSecond = float64(jobs) / out.Seconds
	if !held {
		out.JobsEachSecond = nil
		return nil
	}
	before := float64(doneWhenHeld) / heldAt.Sub(started).Seconds()
	during := float64(int64(jobs)-doneWhenHeld) / ended.Sub(heldAt).Seconds()
	out.JobsPerSecondBefore, out.JobsPerSecondDuring = &before, &during
	return release()
}

// measureLatency enqueues at a steady rate, whatever the workers do, and takes each job's time from there to its handler.
func (b *bench) measureLatency(ctx context.Context, rate float64, measured int, out *result) error {
	warmUp := min(int(rate*2), 200)
	jobs := warmUp + measured
	enqueued := make([]time.Time, jobs)
	latencies := make([]float64, jobs)
	var seen atomic.Int64
	all := make(chan struct{})
	client, err := b.client(func(id int) {
		latencies[id] = float64(time.Since(enqueued[id]).Nanoseconds()) / 1e6
		if int(seen.Add(1)) == jobs {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	failed := make(chan error, jobs)
	mark("measuring")
	started := time.Now()
	pace := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer pace.Stop()
	for id := range jobs {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
		}
		enqueued[id] = time.Now()
		go func() {
			if _, err := client.Insert(ctx, payload(id), nil); err != nil {
				failed <- err
			}
		}()
	}
	select {
	case <-all:
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	out.Seconds = time.Since(started).Seconds()
	out.JobsPerSecond = float64(jobs) / out.Seconds
	mark("measured")
	if err := client.Stop(ctx); err != nil {
		return err
	}
	sorted := latencies[warmUp:]
	slices.Sort(sorted)
	p50, p99 := percentile(sorted, 0.5), percentile(sorted, 0.99)
	out.StartLatencyMsP50, out.StartLatencyMsP99 = &p50, &p99
	return nil
}

func percentile(sorted []float64, share float64) float64 {
	return sorted[min(len(sorted)-1, int(math.Ceil(share*float64(len(sorted))))-1)]
}
