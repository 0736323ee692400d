/* The scenario file that a fake library follows, and what its lines can do to any call. Define SCENARIO before: the
 * environment variable that names the file. `WHO WHAT = VALUE`; WHO is a GPU's number, `*` (every GPU) or `lib`. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "moving.h"

enum { LINES_MAX = 4096, GPUS_MAX = 64 };
static struct line { char who[16], key[112], value[192]; } LINES[LINES_MAX];
static int lines;
static char STALE[GPUS_MAX]; /* GPUs that were gone once: their handles in this process never answer again */

static const char *path(void) { const char *p = getenv(SCENARIO); return p ? p : "/nonexistent"; }

/* Read the lines anew when the file has changed, or is another one. */
static void load(void) {
  static ino_t inode;
  static struct timespec changed;
  struct stat now;
  char text[512];
  if (stat(path(), &now)) return;
  if (now.st_ino == inode && now.st_mtim.tv_sec == changed.tv_sec && now.st_mtim.tv_nsec == changed.tv_nsec) return;
  FILE *file = fopen(path(), "r");
  if (!file) return;
  inode = now.st_ino;
  changed = now.st_mtim;
  for (lines = 0; lines < LINES_MAX && fgets(text, sizeof text, file);) {
    struct line *l = &LINES[lines];
    if (sscanf(text, " %15s %111s = %191[^\n]", l->who, l->key, l->value) == 3) lines++;
  }
  fclose(file);
}

static int is_for(const struct line *l, const char *who) {
  return !strcmp(l->who, who) || (!strcmp(l->who, "*") && strcmp(who, "lib"));
}

/* Value of the last line `who key`, as loaded; NULL when there is none. Good until the eighth next call. */
static const char *said(const char *who, const char *key) {
  for (int i = lines - 1; i >= 0; i--)
    if (is_for(&LINES[i], who) && !strcmp(LINES[i].key, key)) return moving(LINES[i].value, who);
  return NULL;
}

static const char *asked(const char *who, const char *what, const char *name) {
  char key[160];
  snprintf(key, sizeof key, "%s.%s", what, name);
  return said(who, key);
}

static void append(const char *suffix, const char *who, const char *what) {
  char name[512];
  snprintf(name, sizeof name, "%s%s", path(), suffix);
  FILE *file = fopen(name, "a");
  if (file) { fprintf(file, "%s%s%s\n", who, *what ? " " : "", what); fclose(file); }
}

static void pause_s(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&t, &t) && errno == EINTR) {}
}

/* As in uninterruptible sleep: until there is the file `.go`, or the parent is gone. */
static void hang(void) {
  char go[512];
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  snprintf(go, sizeof go, "%s.go", path());
  while (access(go, F_OK) && getppid() != 1) pause_s(0.01);
  sigprocmask(SIG_UNBLOCK, &all, NULL);
}

static int is_gone(const char *who) {
  if (who[0] < '0' || who[0] > '9') return 0;
  char *stale = &STALE[atoi(who) % GPUS_MAX];
  if (said(who, "gone")) *stale = 1;
  return *stale;
}

/* What comes before the answer of every call: it is noted, it hangs, it takes its time. */
static void begin(const char *who, const char *what) {
  const char *value;
  load();
  if (said("lib", "record")) append(".calls", who, what);
  if (asked(who, "hang", what)) hang();
  if ((value = asked(who, "wait", what))) pause_s(atof(value));
}
