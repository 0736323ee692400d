/* The scenario file that a fake library follows, and what its lines can do to any call. Define SCENARIO before: the
 * environment variable that names the file. `WHO WHAT = VALUE`; WHO is a GPU's number, `*` (every GPU) or `lib`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "moving.h"

/* Several threads may call at a time, each for a GPU of its own, as with the real library: so each has its lines. */
enum { LINES_MAX = 4096, GPUS_MAX = 64 };
static __thread struct line { char who[16], key[112], value[192]; } LINES[LINES_MAX];
static __thread unsigned MARKS[LINES_MAX]; /* of the keys: a call looks for ten, and must not cost what it stands for */
static __thread int lines;
static char STALE[GPUS_MAX]; /* GPUs that were gone once: their handles in this process never answer again */

static const char *path(void) { const char *p = getenv(SCENARIO); return p ? p : "/nonexistent"; }

static unsigned mark_of(const char *key) { /* FNV-1a */
  unsigned mark = 2166136261u;
  while (*key) mark = (mark ^ (unsigned char)*key++) * 16777619u;
  return mark;
}

/* Read the lines anew when the file has changed, or is another one. */
static void load(void) {
  static __thread ino_t inode;
  static __thread struct timespec changed;
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
    if (sscanf(text, " %15s %111s = %191[^\n]", l->who, l->key, l->value) == 3) MARKS[lines++] = mark_of(l->key);
  }
  fclose(file);
}

static int is_for(const struct line *l, const char *who) {
  return !strcmp(l->who, who) || (!strcmp(l->who, "*") && strcmp(who, "lib"));
}

/* Value of the last line `who key`, as loaded; NULL when there is none. Good until the eighth next call. */
static const char *said(const char *who, const char *key) {
  unsigned mark = mark_of(key);
  for (int i = lines - 1; i >= 0; i--)
    if (MARKS[i] == mark && is_for(&LINES[i], who) && !strcmp(LINES[i].key, key)) return moving(LINES[i].value, who);
  return NULL;
}

static const char *asked(const char *who, const char *what, const char *name) {
  char key[160];
  size_t length = strlen(what);
  if (length + strlen(name) + 2 > sizeof key) return NULL;
  memcpy(key, what, length);
  key[length] = '.';
  strcpy(key + length + 1, name);
  return said(who, key);
}

/* The number in a small file beside the scenario; 0: there is none. */
static int told(const char *who, const char *suffix, unsigned long long *out) {
  char name[512], text[32];
  snprintf(name, sizeof name, "%s.%s.%s", path(), who, suffix);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (length <= 0 || text[0] < '0' || text[0] > '9') return 0;
  text[length] = 0;
  *out = strtoull(text, NULL, 10);
  return 1;
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

/* What comes before the answer of every call, once it is loaded: it is noted, it hangs, it takes its time. */
static void begin(const char *who, const char *what) {
  const char *value;
  if (said("lib", "record")) append(".calls", who, what);
  if (asked(who, "hang", what)) hang();
  if ((value = asked(who, "wait", what))) pause_s(atof(value));
}
