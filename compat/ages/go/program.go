// What Go's clients share: the commands of ages/program.py.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

type driver interface {
	create(topic string) error
	produce(topic, codec string, first, end int, idempotent bool) error
	transaction(topic, id string, first, end int, commits bool) error
	read(topic, group string, count int, committed bool) ([]int, error)
	committed(topic, group string) (int64, error)
	time(topic string, at int64) (int64, error)
}

var (
	bootstrap string
	t0        int64
)

func key(number int) string { return fmt.Sprintf("key-%d", number%10) }
func value(number int) string {
	return fmt.Sprintf("%05d ", number) + strings.Repeat("a line that repeats itself ", 4)
}
func numberOf(found []byte) int   { number, _ := strconv.Atoi(string(found[:5])); return number }
func timeOf(number int) time.Time { return time.UnixMilli(t0 + int64(number)) }

func answer(c driver, words []string) (map[string]any, error) {
	number := func(at int) int { found, _ := strconv.Atoi(words[at]); return found }
	topic := words[1]
	switch words[0] {
	case "create":
		return map[string]any{}, c.create(topic)
	case "produce":
		return map[string]any{}, c.produce(topic, words[2], number(3), number(4), words[5] == "idempotent")
	case "transaction":
		return map[string]any{}, c.transaction(topic, words[2], number(3), number(4), words[5] == "commit")
	case "read":
		numbers, err := c.read(topic, words[2], number(3), words[4] == "read_committed")
		return map[string]any{"numbers": numbers}, err
	case "committed":
		offset, err := c.committed(topic, words[2])
		return map[string]any{"offset": offset}, err
	}
	at, _ := strconv.ParseInt(words[2], 10, 64)
	offset, err := c.time(topic, at)
	return map[string]any{"offset": offset}, err
}

func main() {
	bootstrap = os.Args[1]
	t0, _ = strconv.ParseInt(os.Args[2], 10, 64)
	c := newClient()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		found, err := answer(c, strings.Fields(commands.Text()))
		if err != nil {
			found = map[string]any{"error": err.Error()}
		}
		line, _ := json.Marshal(found)
		fmt.Println(string(line))
	}
}
