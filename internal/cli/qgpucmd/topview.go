package qgpucmd

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/qgpu-project/qgpu/internal/share"
)

// view is all that a frame's text depends on.
type view struct {
	frame    frame
	err      error // of the last reading
	history  map[string][]*float64
	width    int // columns
	height   int // lines; 0: as many as there are
	order    order
	selected row
	styles   styles
}

type styles struct{ title, card, faint, header, selected, full, bad lipgloss.Style }

// newStyles are a terminal's; the zero styles are plain text.
func newStyles() styles {
	s := lipgloss.NewStyle()
	return styles{
		title: s.Bold(true), card: s.Bold(true).Foreground(lipgloss.Color("6")), faint: s.Faint(true),
		header: s.Faint(true), selected: s.Reverse(true), full: s.Foreground(lipgloss.Color("3")),
		bad: s.Foreground(lipgloss.Color("1")),
	}
}

// lines are lines of text, of which one is selected; selected is -1 if none is.
type lines struct {
	all      []string
	selected int
}

func (l *lines) add(s string) { l.all = append(l.all, s) }

func (l lines) text() string { return strings.Join(l.all, "\n") + "\n" }

// window is the part of l of at most n lines in which the selected line is.
func (l lines) window(n int) []string {
	first := 0
	if l.selected >= n {
		first = l.selected - n + 1
	}
	return l.all[first:min(first+max(n, 0), len(l.all))]
}

// String is the whole screen: title, cards, the selected tenant, keys.
func (v view) String() string {
	head := []string{v.styles.title.Render(clip("qgpu top", v.width))}
	if at := v.frame.at; !at.IsZero() {
		head[0] = v.styles.title.Render(clip(fmt.Sprintf("qgpu top  %s  by %s", at.Format(time.TimeOnly), v.order), v.width))
	}
	if v.err != nil {
		head = append(head, v.styles.bad.Render(clip(printable(v.err.Error()), v.width)))
	}
	foot := append(v.detail(), v.styles.faint.Render(clip("q quit  ↑↓ select  s sort", v.width)))
	body := v.body()
	middle := body.all
	if v.height > 0 {
		middle = body.window(v.height - len(head) - len(foot))
	}
	screen := append(append(head, middle...), foot...)
	if v.height > 0 {
		screen = screen[:min(len(screen), v.height)]
	}
	return strings.Join(screen, "\n")
}

// body is the cards and their tenants.
func (v view) body() lines {
	l := lines{selected: -1}
	if len(v.frame.cards) == 0 {
		l.add(clip("no cards yet", v.width))
	}
	for i, c := range v.frame.cards {
		if i > 0 {
			l.add("")
		}
		v.card(&l, c)
	}
	return l
}

func (v view) card(l *lines, c cardView) {
	title := fmt.Sprintf("card %d  %s", c.index, printable(c.name))
	if c.policy != "" {
		title += "  " + string(c.policy)
	}
	l.add(v.styles.card.Render(clip(fmt.Sprintf("%s  %d tenant%s", title, len(c.tenants), plural(len(c.tenants))), v.width)))
	used, allotted := c.used()
	barWidth := min(historyLength, v.width/4)
	l.add(clip(fmt.Sprintf("  memory   %s  %s used, %s allotted of %s", bar(used, allotted, c.total, barWidth),
		amount(used), amount(allotted), amount(c.total)), v.width))
	past := ""
	if h, ok := v.history[c.uuid]; ok {
		past = sparkline(h, barWidth) + "  "
	}
	l.add(clip(fmt.Sprintf("  compute  %s%s", past, percent(c.busy)), v.width))
	if len(c.tenants) == 0 {
		return
	}
	columns := columnsFor(v.width)
	l.add(v.styles.header.Render(tableRow(columns, v.width, func(col column) string { return col.title })))
	for _, t := range v.order.sorted(c.tenants) {
		text := tableRow(columns, v.width, func(col column) string { return col.text(t, v.frame.at) })
		switch {
		case v.selected == row{c.uuid, t.id}:
			l.selected = len(l.all)
			text = v.styles.selected.Render(text)
		case t.state == nil:
			text = v.styles.bad.Render(text)
		case t.quota > 0 && t.used >= t.quota/10*9:
			text = v.styles.full.Render(text)
		}
		l.add(text)
	}
}

// detail is more of the selected tenant than a row holds.
func (v view) detail() []string {
	for _, c := range v.frame.cards {
		for _, t := range c.tenants {
			if (row{c.uuid, t.id}) != v.selected {
				continue
			}
			more := "its mediator does not answer: " + printable(t.failure)
			if t.state != nil {
				refused := uint64(0)
				for _, r := range t.state.Refused {
					refused += r.Count
				}
				more = fmt.Sprintf("%d process%s, %d calls, %d refused", len(t.state.Processes), plurals(len(t.state.Processes)), t.state.Calls, refused)
			}
			return []string{"", clip(t.id+"  "+printable(strings.Join(t.program, " ")), v.width), v.styles.faint.Render(clip(more, v.width))}
		}
	}
	return []string{""}
}

// column is a column of the table of tenants.
type column struct {
	title string
	width int // 0: what is left
	from  int // the terminal's width from which on there is room for it
	right bool
	text  func(t tenantView, now time.Time) string
}

var tenantColumns = []column{
	{title: "ID", width: 12, text: func(t tenantView, _ time.Time) string { return t.id }},
	{title: "CLASS", width: 8, from: 80, text: func(t tenantView, _ time.Time) string { return t.class.String() }},
	{title: "CORE", width: 4, from: 60, right: true, text: func(t tenantView, _ time.Time) string {
		if t.core == 0 {
			return "-"
		}
		return fmt.Sprintf("%d%%", t.core)
	}},
	{title: "COMPUTE", width: 7, right: true, text: func(t tenantView, _ time.Time) string { return percent(t.compute) }},
	{title: "MEMORY", width: 15, right: true, text: func(t tenantView, _ time.Time) string {
		if t.state == nil {
			return "-/" + amount(t.quota)
		}
		return amount(t.used) + "/" + amount(t.quota)
	}},
	{title: "SINCE", width: 9, from: 70, right: true, text: func(t tenantView, now time.Time) string {
		return now.Sub(t.since).Truncate(time.Second).String()
	}},
	{title: "PROGRAM", from: 50, text: func(t tenantView, _ time.Time) string { return printable(strings.Join(t.program, " ")) }},
}

func columnsFor(width int) []column {
	var fit []column
	for _, c := range tenantColumns {
		if width >= c.from {
			fit = append(fit, c)
		}
	}
	return fit
}

func tableRow(columns []column, width int, text func(column) string) string {
	var b strings.Builder
	for _, c := range columns {
		b.WriteString("  ")
		cell := text(c)
		if c.width == 0 {
			b.WriteString(cell)
			continue
		}
		cell = clip(cell, c.width)
		pad := strings.Repeat(" ", c.width-lipgloss.Width(cell))
		if c.right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return clip(strings.TrimRight(b.String(), " "), width)
}

// clip cuts s to so many columns.
func clip(s string, width int) string { return ansi.Truncate(s, width, "…") }

// printable is s without what would steer a terminal: a tenant chooses its command line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// bar shows used █ and allotted ▒ of total in so many columns.
func bar(used, allotted, total share.Memory, width int) string {
	if total <= 0 {
		return strings.Repeat("░", width)
	}
	columns := func(m share.Memory) int {
		return min(width, int(math.Round(float64(m)/float64(total)*float64(width))))
	}
	u, a := columns(used), columns(max(used, allotted))
	return strings.Repeat("█", u) + strings.Repeat("▒", a-u) + strings.Repeat("░", width-a)
}

// sparkline draws the last readings of a use in percent, the newest at the right. A
// reading that is not known is a gap.
func sparkline(readings []*float64, width int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	readings = readings[max(0, len(readings)-width):]
	out := []rune(strings.Repeat(" ", width-len(readings)))
	for _, p := range readings {
		if p == nil {
			out = append(out, ' ')
			continue
		}
		at := int(*p / share.Whole * float64(len(levels)))
		out = append(out, levels[min(max(at, 0), len(levels)-1)])
	}
	return string(out)
}

func percent(p *float64) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *p)
}

// amount is m in at most seven columns.
func amount(m share.Memory) string {
	switch {
	case m == 0:
		return "0"
	case m < share.GiB:
		return fmt.Sprintf("%.0fMi", float64(m)/float64(share.MiB))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(m)/float64(share.GiB)), ".0") + "Gi"
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func plurals(n int) string {
	if n == 1 {
		return ""
	}
	return "es"
}
