/* A libnvidia-ml.so.1 that answers what a scenario file says. The real nvidia-ml-py loads it.
 *
 * The file named by FAKE_NVML has lines `GPU WHAT = VALUE`; GPU is a number, `*` or `lib`, later lines win.
 * WHAT is a function's name without `nvmlDeviceGet`, with its constant arguments (`ClockInfo.1`, `field.165/3`).
 *   0 error.PowerUsage = 15     the call answers with this nvmlReturn_t; `0 error = 15`: every reading does
 *   0 hang.PowerUsage = 1       the call returns when there is a file named like the scenario with `.go` behind it;
 *                               no signal ends it before, as in uninterruptible sleep
 *   0 wait.PowerUsage = 0.5     the call takes this many seconds
 *   0 die = 9 | 0 garbage = x   the process ends, or says something on its parent's pipe
 *   0 gone = 1                  the GPU has fallen off or was taken out: lost for a process that runs, not there for one
 *                               that starts. Which GPUs there are (`lib count`) is fixed when a process initialises
 *   0 OutOfBandLimit = 500000   a limit (mW) that was set past the driver; what is enforced is the lowest
 *   0 ring = 700000 913000      power samples (mW), 20 ms apart, these again and again; the last 119 are kept
 *   0 stuck = 1                 a limit that is set is taken and has no effect
 *   0 ProcessId = 4711          the first of its processes has this number (else 1000), the next ones those after it
 * What is set with nvmlDeviceSetPowerManagementLimit stays, for all processes, in `FILE.GPU.limit`, as in a driver; it
 * goes when that file does (a driver reload). Each set is a line `GPU mW` in `FILE.sets`.
 *   0 mig.0 = MIG-5c89…         MIG is on, and this is the UUID of the first device; without a line, MIG is off
 *   lib count = 8 | lib error.Init = 9 | lib hang.Init = 1 | lib print = text | lib record = 1 (calls go to `FILE.calls`)
 * A reading without a line is not supported. The file is changed while the helper runs; the next call answers by it.
 * A number may move by itself: `moving.h`.
 * -DNO_INIT and -DOLD leave functions out, as libraries of older drivers do.
 */
#define SCENARIO "FAKE_NVML"
#include "scenario.h"

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { SLICES_MAX = 7 };
static char DEVICES[GPUS_MAX], SLICES[GPUS_MAX][SLICES_MAX]; /* a handle is the place in one of them */
static int ORDER[GPUS_MAX], order = -1;                     /* the GPUs of this process; -1: not initialised */

static void append_pid(const char *suffix) {
  char pid[16];
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  append(suffix, pid, "");
}

/* What comes before every answer: `begin`, and the status. */
static int enter(const char *who, const char *name) {
  const char *value;
  load();
  if ((value = said(who, "die"))) _exit(atoi(value));
  if ((value = said(who, "garbage")))
    for (int fd = 3; fd < 64; fd++) {
      struct stat kind;
      if (!fstat(fd, &kind) && S_ISFIFO(kind.st_mode) && dprintf(fd, "%s\n", value) > 0) break;
    }
  begin(who, name);
  if (is_gone(who)) return LOST;
  if ((value = asked(who, "error", name))) return atoi(value);
  if (strcmp(name, "UUID") && strcmp(name, "Name") && strcmp(name, "PciInfo") && (value = said(who, "error")))
    return atoi(value);
  return SUCCESS;
}

static const char *who_of(void *handle) {
  static __thread char name[16];
  snprintf(name, sizeof name, "%d", (int)((char *)handle - DEVICES));
  return name;
}

static int number(void *handle, const char *name, const char *key, unsigned width, void *out) {
  int status = enter(who_of(handle), name);
  const char *value = status ? NULL : said(who_of(handle), key);
  if (status) return status;
  if (!value) return NOT_SUPPORTED;
  uint64_t bits = value[0] == '-' ? (uint64_t)strtoll(value, NULL, 0) : strtoull(value, NULL, 0);
  memcpy(out, &bits, width);
  return SUCCESS;
}

static int number_by(void *handle, const char *name, unsigned a, int b, unsigned width, void *out) {
  char key[64];
  if (b < 0) snprintf(key, sizeof key, "%s.%u", name, a);
  else snprintf(key, sizeof key, "%s.%u.%d", name, a, b);
  return number(handle, name, key, width, out);
}

static int text(void *handle, const char *name, char *out, unsigned size) {
  int status = enter(who_of(handle), name);
  const char *value = status ? NULL : said(who_of(handle), name);
  if (status) return status;
  if (!value) return NOT_SUPPORTED;
  snprintf(out, size, "%s", value);
  return SUCCESS;
}

#define NUMBER32(NAME, KEY) int nvmlDeviceGet##NAME(void *d, uint32_t *out) { return number(d, KEY, KEY, 4, out); }
#define NUMBER64(NAME, KEY) int nvmlDeviceGet##NAME(void *d, uint64_t *out) { return number(d, KEY, KEY, 8, out); }
#define BY_KIND(NAME) int nvmlDeviceGet##NAME(void *d, unsigned a, uint32_t *out) { return number_by(d, #NAME, a, -1, 4, out); }
#define TWO(NAME) \
  int nvmlDeviceGet##NAME(void *d, uint32_t *a, uint32_t *b) { \
    int status = number_by(d, #NAME, 0, -1, 4, a); \
    return status ? status : number_by(d, #NAME, 1, -1, 4, b); \
  }
#define TEXT(NAME) int nvmlDeviceGet##NAME(void *d, char *out, unsigned size) { return text(d, #NAME, out, size); }

static int latch(void);
#ifndef NO_INIT
int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  load();
  append_pid(".starts");
  const char *words = said("lib", "print");
  if (words) { printf("%s\n", words); fflush(stdout); }
  int status = enter("lib", "Init");
  latch();
  return status;
}
#endif
int nvmlShutdown(void) { append_pid(".ends"); return SUCCESS; }
const char *nvmlErrorString(int code) {
  static char message[32];
  snprintf(message, sizeof message, "NVML error %d", code);
  return message;
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  const char *value = said("lib", "driver");
  snprintf(out, size, "%s", value ? value : "");
  return value ? SUCCESS : NOT_SUPPORTED;
}

/* The GPUs that are there when the process initialises; it never learns of others. */
static int latch(void) {
  char who[16];
  const char *value = said("lib", "count");
  int count = value ? atoi(value) : 0;
  for (int i = order = 0; i < count && i < GPUS_MAX; i++) {
    snprintf(who, sizeof who, "%d", i);
    if (!said(who, "gone")) ORDER[order++] = i;
  }
  return order;
}
int nvmlDeviceGetCount_v2(uint32_t *out) {
  int status = enter("lib", "Count");
  *out = (uint32_t)(order < 0 ? latch() : order);
  return status;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
  if (index >= (unsigned)order) return INVALID_ARGUMENT;
  *out = &DEVICES[ORDER[index]];
  return enter(who_of(*out), "HandleByIndex");
}
/* Looking for a GPU touches those before it, as in the real library: one that hangs keeps the others from being found. */
static int found_by(const char *key, const char *wanted, const char *name, int touch, void **out) {
  for (int i = 0; i < order; i++) {
    char who[16];
    snprintf(who, sizeof who, "%d", ORDER[i]);
    if (touch) enter(who, "Attach");
    const char *value = said(who, key);
    if (value && !strcmp(value, wanted)) return *out = &DEVICES[ORDER[i]], enter(who, name);
  }
  return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
  enter("lib", "Count");
  return found_by("UUID", uuid, "HandleByUUID", 1, out);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
  enter("lib", "Count");
  return found_by("PciInfo", bus, "HandleByPciBusId", 0, out);
}
int nvmlDeviceGetMigMode(void *d, uint32_t *now, uint32_t *later) {
  int status = enter(who_of(d), "MigMode");
  *now = *later = 0;
  for (int i = 0; i < SLICES_MAX; i++) {
    char key[16];
    snprintf(key, sizeof key, "mig.%d", i);
    if (said(who_of(d), key)) *now = *later = 1;
  }
  return status;
}
int nvmlDeviceGetMaxMigDeviceCount(void *d, uint32_t *out) {
  *out = SLICES_MAX;
  return enter(who_of(d), "MaxMigDeviceCount");
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned index, void **out) {
  char key[16];
  snprintf(key, sizeof key, "mig.%u", index);
  int status = enter(who_of(d), "MigDeviceHandleByIndex");
  if (!status && !said(who_of(d), key)) return NOT_FOUND;
  *out = &SLICES[(char *)d - DEVICES][index % SLICES_MAX];
  return status;
}
int nvmlDeviceGetPciInfo_v3(void *d, char *out) { /* nvmlPciInfo_t: busId follows 16 + 5 * 4 bytes */
  return text(d, "PciInfo", out + 36, 32);
}

int nvmlDeviceGetUUID(void *d, char *out, unsigned size) {
  long place = (char *)d - &SLICES[0][0];
  if (place < 0 || place >= GPUS_MAX * SLICES_MAX) return text(d, "UUID", out, size);
  char key[16];
  snprintf(key, sizeof key, "mig.%ld", place % SLICES_MAX);
  void *gpu = &DEVICES[place / SLICES_MAX];
  int status = enter(who_of(gpu), "MigUUID");
  const char *value = status ? NULL : said(who_of(gpu), key);
  return value ? snprintf(out, size, "%s", value), SUCCESS : status ? status : NOT_FOUND;
}
TEXT(Name) TEXT(VbiosVersion)
int nvmlDeviceGetGspFirmwareVersion(void *d, char *out) { return text(d, "GspFirmwareVersion", out, 64); }
NUMBER32(PowerUsage, "PowerUsage")

enum { RING = 119, RING_US = 20000, POWER_SAMPLES = 0, RING_VALUES_MAX = 32 };
struct sample { uint64_t at_us, value; };
int nvmlDeviceGetSamples(void *d, int kind, unsigned long long after_us, uint32_t *type, uint32_t *count, struct sample *out) {
  int status = enter(who_of(d), "Samples");
  const char *text = status ? NULL : said(who_of(d), "ring");
  uint64_t values[RING_VALUES_MAX], many = 0;
  struct timespec now;
  if (status) return status;
  if (!text || kind != POWER_SAMPLES) return NOT_SUPPORTED;
  for (char *next; many < RING_VALUES_MAX; text = next) {
    values[many] = strtoull(text, &next, 0);
    if (next == text) break;
    many++;
  }
  if (!many) return NOT_SUPPORTED;
  *type = 1; /* unsigned int */
  if (!out) { *count = RING; return SUCCESS; }
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t newest = ((uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000) / RING_US;
  uint32_t found = 0;
  for (uint64_t slot = newest - RING + 1; slot <= newest && found < *count; slot++)
    if (slot * RING_US > after_us) out[found++] = (struct sample){slot * RING_US, values[slot % many]};
  *count = found;
  return found ? SUCCESS : NOT_FOUND;
}

/* What was set, by any process. */
static int limit_set(const char *who, uint32_t *out) {
  unsigned long long value;
  int found = told(who, "limit", &value);
  if (found) *out = (uint32_t)value;
  return found;
}
int nvmlDeviceGetPowerManagementLimit(void *d, uint32_t *out) {
  int status = number(d, "PowerManagementLimit", "PowerManagementLimit", 4, out);
  if (!status) limit_set(who_of(d), out);
  return status;
}
int nvmlDeviceGetEnforcedPowerLimit(void *d, uint32_t *out) {
  int status = number(d, "EnforcedPowerLimit", "EnforcedPowerLimit", 4, out);
  const char *past = status ? NULL : said(who_of(d), "OutOfBandLimit");
  if (!status) limit_set(who_of(d), out);
  if (past && strtoul(past, NULL, 0) < *out) *out = (uint32_t)strtoul(past, NULL, 0);
  return status;
}
int nvmlDeviceSetPowerManagementLimit(void *d, unsigned limit) {
  char who[16], name[512], fresh[560];
  unsigned low = 0, high = 0;
  snprintf(who, sizeof who, "%s", who_of(d));
  int status = enter(who, "SetPowerManagementLimit");
  if (!status) status = number(d, "SetPowerManagementLimit", "PowerManagementLimitConstraints.0", 4, &low);
  if (!status) status = number(d, "SetPowerManagementLimit", "PowerManagementLimitConstraints.1", 4, &high);
  if (status) return status;
  if (limit < low || limit > high) return INVALID_ARGUMENT;
  snprintf(name, sizeof name, "%u", limit);
  append(".sets", who, name);
  if (said(who, "stuck")) return SUCCESS;
  snprintf(name, sizeof name, "%s.%s.limit", path(), who);
  snprintf(fresh, sizeof fresh, "%s.%d", name, (int)getpid());
  FILE *file = fopen(fresh, "w");
  if (!file) return 999;
  fprintf(file, "%u\n", limit);
  fclose(file);
  return rename(fresh, name) ? 999 : SUCCESS;
}
/* The highest clock that was locked stays in `FILE.GPU.clock`, as a limit does. Each lock is a line in `FILE.clocks`. */
static int lock_clock(void *d, const char *name, unsigned lowest, unsigned highest) {
  char who[16], text[512], fresh[560];
  snprintf(who, sizeof who, "%s", who_of(d));
  int status = enter(who, name);
  if (status) return status;
  snprintf(text, sizeof text, "%u %u", lowest, highest);
  append(".clocks", who, text);
  if (said(who, "stuck")) return SUCCESS;
  snprintf(text, sizeof text, "%s.%s.clock", path(), who);
  if (!highest) return remove(text) && errno != ENOENT ? 999 : SUCCESS;
  snprintf(fresh, sizeof fresh, "%s.%d", text, (int)getpid());
  FILE *file = fopen(fresh, "w");
  if (!file) return 999;
  fprintf(file, "%u\n", highest);
  fclose(file);
  return rename(fresh, text) ? 999 : SUCCESS;
}
int nvmlDeviceSetGpuLockedClocks(void *d, unsigned lowest, unsigned highest) {
  return highest < lowest || !highest ? INVALID_ARGUMENT : lock_clock(d, "SetGpuLockedClocks", lowest, highest);
}
int nvmlDeviceResetGpuLockedClocks(void *d) { return lock_clock(d, "ResetGpuLockedClocks", 0, 0); }
int nvmlDeviceGetClockInfo(void *d, unsigned kind, uint32_t *out) {
  int status = number_by(d, "ClockInfo", kind, -1, 4, out);
  unsigned long long most;
  if (status || kind > 1) return status; /* 0 and 1: graphics and SM */
  if (told(who_of(d), "clock", &most) && most < *out) *out = (uint32_t)most;
  return status;
}
NUMBER32(PowerManagementDefaultLimit, "PowerManagementDefaultLimit")
NUMBER32(CurrPcieLinkGeneration, "CurrPcieLinkGeneration") NUMBER32(MaxPcieLinkGeneration, "MaxPcieLinkGeneration")
NUMBER32(CurrPcieLinkWidth, "CurrPcieLinkWidth") NUMBER32(MaxPcieLinkWidth, "MaxPcieLinkWidth")
NUMBER32(PcieReplayCounter, "PcieReplayCounter")
NUMBER64(TotalEnergyConsumption, "TotalEnergyConsumption")
BY_KIND(Temperature) BY_KIND(MaxClockInfo)
TWO(EccMode) TWO(PowerManagementLimitConstraints)
TWO(EncoderUtilization) TWO(DecoderUtilization)
int nvmlDeviceGetUtilizationRates(void *d, uint32_t out[2]) {
  int status = number_by(d, "UtilizationRates", 0, -1, 4, out);
  return status ? status : number_by(d, "UtilizationRates", 1, -1, 4, out + 1);
}
int nvmlDeviceGetMemoryInfo_v2(void *d, uint64_t out[5]) { /* version, total, reserved, free, used */
  static const int place[4] = {1, 2, 3, 4};
  for (unsigned i = 0; i < 4; i++) {
    int status = number_by(d, "MemoryInfo", i, -1, 8, out + place[i]);
    if (status) return status;
  }
  return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(void *d, unsigned kind, unsigned counter, uint64_t *out) {
  (void)counter;
  return number_by(d, "TotalEccErrors", kind, -1, 8, out);
}
int nvmlDeviceGetMemoryErrorCounter(void *d, unsigned kind, unsigned counter, unsigned location, uint64_t *out) {
  (void)counter;
  return number_by(d, "MemoryErrorCounter", kind, (int)location, 8, out);
}
int nvmlDeviceGetRemappedRows(void *d, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *e) {
  uint32_t *out[] = {a, b, c, e};
  for (unsigned i = 0; i < 4; i++) {
    int status = number_by(d, "RemappedRows", i, -1, 4, out[i]);
    if (status) return status;
  }
  return SUCCESS;
}
struct process { uint32_t pid; uint64_t memory; uint32_t gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, uint32_t *count, struct process *out) {
  uint32_t found = 0;
  int status = number(d, "Processes", "Processes", 4, &found);
  const char *first = said(who_of(d), "ProcessId");
  if (status || !found) { *count = 0; return status; }
  if (*count < found || !out) { *count = found; return INSUFFICIENT_SIZE; }
  for (*count = 0; *count < found; ++*count) {
    struct process *p = &out[*count];
    *p = (struct process){(first ? (uint32_t)atoi(first) : 1000) + *count, 0, 0xffffffff, 0xffffffff};
    number(d, "ProcessMemory", "ProcessMemory", 8, &p->memory);
  }
  return SUCCESS;
}

struct field { uint32_t id, scope; int64_t timestamp, latency; uint32_t type; int status; union { uint64_t wide; } value; };
int nvmlDeviceGetFieldValues(void *d, int count, struct field *fields) {
  int status = enter(who_of(d), "FieldValues");
  for (int i = 0; i < count && !status; i++) {
    struct field *f = &fields[i];
    char key[64];
    snprintf(key, sizeof key, "field.%u/%u", f->id, f->scope);
    const char *value = said(who_of(d), key);
    snprintf(key, sizeof key, "field.%u", f->id);
    if (!value) value = said(who_of(d), key);
    f->status = value ? SUCCESS : NOT_SUPPORTED;
    f->type = 3; /* unsigned long long */
    f->value.wide = value ? strtoull(value, NULL, 0) : 0;
    if (value && strchr(value, 'u')) f->type = 1; /* `186 = 695500u`: unsigned int */
    if (value && !strcmp(value, "type99")) f->type = 99;
  }
  return status;
}

#ifndef OLD /* what drivers before Hopper do not have */
int nvmlDeviceGetMarginTemperature(void *d, uint32_t out[2]) { return number(d, "MarginTemperature", "MarginTemperature", 4, out + 1); }
NUMBER64(CurrentClocksEventReasons, "CurrentClocksEventReasons")
struct gpm_sample { int taken; };
struct metric { uint32_t id; int status; double value; const char *words[3]; };
struct metrics { uint32_t version, count; struct gpm_sample *one, *two; struct metric metrics[477]; };
int nvmlGpmQueryDeviceSupport(void *d, uint32_t out[2]) {
  int status = enter(who_of(d), "GpmSupport");
  out[1] = said(who_of(d), "gpm.1") != NULL;
  return status;
}
int nvmlGpmSampleAlloc(struct gpm_sample **out) {
  *out = calloc(1, sizeof **out);
  return enter("lib", "GpmSampleAlloc");
}
int nvmlGpmSampleFree(struct gpm_sample *sample) { return free(sample), SUCCESS; }
int nvmlGpmSampleGet(void *d, struct gpm_sample *sample) {
  sample->taken = 1 + (int)((char *)d - DEVICES);
  return enter(who_of(d), "GpmSample");
}
int nvmlGpmMetricsGet(struct metrics *m) {
  if (!m->one->taken || m->one->taken != m->two->taken) return 2;
  for (unsigned i = 0; i < m->count; i++) {
    char key[32];
    snprintf(key, sizeof key, "gpm.%u", m->metrics[i].id);
    const char *value = said(who_of(&DEVICES[m->one->taken - 1]), key);
    m->metrics[i].status = value ? SUCCESS : NOT_SUPPORTED;
    m->metrics[i].value = value ? atof(value) : 0.0;
  }
  return SUCCESS;
}
#endif
