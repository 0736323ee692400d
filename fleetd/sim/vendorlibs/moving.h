/* Values that move while a scenario stands: `692000 ~ 9000` wanders by so much, `5 + 700` grows by 700 a second.
 * Time is counted from the machine's start, so that a new process goes on where the last one was. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The value as it is now for a GPU; itself when it does not move. Good until the eighth next call. */
static const char *moving(const char *value, const char *who) {
  static char texts[8][32];
  static unsigned turn;
  double base, by;
  char how;
  struct timespec t;
  if (!strpbrk(value, "~+") || sscanf(value, "%lf %c %lf", &base, &how, &by) != 3 || !strchr("~+", how)) return value;
  clock_gettime(CLOCK_MONOTONIC, &t);
  double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, gpu = atof(who);
  double change = how == '+' ? by * now : by * (0.6 * sin(now / 7 + 2 * gpu) + 0.4 * sin(now / 1.7 + gpu));
  char *text = texts[turn++ % 8];
  snprintf(text, sizeof texts[0], strchr(value, '.') ? "%.3f" : "%.0f", base + change);
  return text;
}
