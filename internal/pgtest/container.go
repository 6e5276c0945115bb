package pgtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

const (
	defaultImage = "postgres:17-alpine"
	// pullTimeout covers the first run, which pulls the image.
	pullTimeout = 5 * time.Minute
)

// fromContainer starts a server in a container.
func fromContainer() (*instance, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	image := os.Getenv(envImage)
	if image == "" {
		image = defaultImage
	}
	c, err := run(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	stop := func() error { return testcontainers.TerminateContainer(c) }
	inst, err := connect(ctx, c)
	if err != nil {
		stop() //nolint:errcheck // the first error is the one to tell
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	inst.stop = stop
	return inst, nil
}

// run starts the container.
func run(ctx context.Context, image string) (c *testcontainers.DockerContainer, err error) {
	// testcontainers panics where it finds no Docker.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAbsent, p)
		}
	}()
	cmd := []string{"postgres"}
	for _, p := range parameters(nil) {
		cmd = append(cmd, "-c", p)
	}
	c, err = testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts("5432/tcp"),
		// In memory, which is faster by far, and gone with the container.
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": "pgtest", "PGDATA": "/pgdata"}),
		testcontainers.WithTmpfs(map[string]string{"/pgdata": "rw"}),
		testcontainers.WithCmd(cmd...),
	)
	if err != nil && c != nil {
		testcontainers.TerminateContainer(c) //nolint:errcheck // the first error is the one to tell
	}
	return c, err
}

// connect waits until the server in c is ready.
func connect(ctx context.Context, c *testcontainers.DockerContainer) (*instance, error) {
	host, err := c.Host(ctx)
	if err != nil {
		return nil, err
	}
	port, err := c.MappedPort(ctx, "5432/tcp")
	if err != nil {
		return nil, err
	}
	url := "postgres://postgres:pgtest@" + net.JoinHostPort(host, port.Port()) + "/postgres?sslmode=disable"
	logs := func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		r, err := c.Logs(ctx)
		if err != nil {
			return "", err
		}
		defer r.Close()
		text, err := io.ReadAll(r)
		return string(text), err
	}
	// While the image makes its database, the server listens on its socket only,
	// so the first answer over the network comes from the one that stays.
	err = awaitReady(url, func() error {
		state, err := c.State(ctx)
		if err != nil {
			return err
		}
		if !state.Running {
			text, _ := logs()
			return fmt.Errorf("the container has ended: %s", text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &instance{url: url, log: logs}, nil
}
