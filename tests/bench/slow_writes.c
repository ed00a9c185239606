/*
 * A kernel whose writes to queue/scheduler and queue/nr_requests take their time, for trees of plain
 * files in the place of sysfs: preloaded, this stands between a program and its write(2).
 *
 *   SLOW_WRITES_US    how long such a write waits, in microseconds: the freeze of the queue
 *   SLOW_WRITES_LOCK  a folder for a lock of each SCSI host that is only tried: shared for the
 *                     scheduler, alone for nr_requests; who does not get it has EBUSY
 *                     (block/blk-sysfs.c on newer kernels)
 *   SLOW_WRITES_LOG   a file that gets a line with the errno of each write that was refused
 *
 * The file then holds what the kernel would print. All other writes go through as they are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum kind { OTHER, SCHEDULER, REQUESTS };

static ssize_t plain(int file, const void *text, size_t length)
{
	return syscall(SYS_write, file, text, length);
}

/* Which attribute the descriptor is of; its path goes to PATH. */
static enum kind attribute(int file, char *path, size_t room)
{
	char link[64];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
	ssize_t length = readlink(link, path, room - 1);
	if (length <= 0)
		return OTHER;
	path[length] = '\0';
	const char *leaf = strstr(path, "/queue/");
	if (leaf && !strcmp(leaf, "/queue/scheduler"))
		return SCHEDULER;
	return leaf && !strcmp(leaf, "/queue/nr_requests") ? REQUESTS : OTHER;
}

/* Try the lock of the disk's host: its descriptor, -1 where there is no locking, -2 if it is held. */
static int locked(const char *path, enum kind kind)
{
	const char *folder = getenv("SLOW_WRITES_LOCK");
	const char *host = strstr(path, "/host");
	char name[4096];
	if (!folder || !host)
		return -1;
	host++;
	snprintf(name, sizeof(name), "%s/%.*s", folder, (int)strcspn(host, "/"), host);
	int lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0)
		return -1;
	if (flock(lock, (kind == SCHEDULER ? LOCK_SH : LOCK_EX) | LOCK_NB)) {
		close(lock);
		return -2;
	}
	return lock;
}

static void note(int number)
{
	const char *name = getenv("SLOW_WRITES_LOG");
	int log = name ? open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
	char line[16];
	if (log < 0)
		return;
	plain(log, line, snprintf(line, sizeof(line), "%d\n", number));
	close(log);
}

static void wait_for_the_queue(void)
{
	const char *given = getenv("SLOW_WRITES_US");
	long micros = given ? atol(given) : 0;
	struct timespec rest = { micros / 1000000, micros % 1000000 * 1000 };
	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
}

/* Store the text as the kernel would print it; the file was opened without O_TRUNC, as sysfs is. */
static ssize_t store(int file, const char *text, size_t length, enum kind kind)
{
	char shown[128];
	int word = strcspn(text, "\n");
	if (word > (int)length)
		word = length;
	if (kind == REQUESTS)
		snprintf(shown, sizeof(shown), "%.*s\n", word, text);
	else if (!strncmp(text, "none", 4))
		snprintf(shown, sizeof(shown), "[none] mq-deadline kyber\n");
	else
		snprintf(shown, sizeof(shown), "[%.*s] none\n", word, text);
	if (ftruncate(file, 0) || lseek(file, 0, SEEK_SET) < 0)
		return -1;
	return plain(file, shown, strlen(shown)) < 0 ? -1 : 0;
}

ssize_t write(int file, const void *text, size_t length)
{
	char path[4096], copy[64];
	if (file < 3 || length == 0 || length >= sizeof(copy))
		return plain(file, text, length);
	enum kind kind = attribute(file, path, sizeof(path));
	if (kind == OTHER)
		return plain(file, text, length);
	memcpy(copy, text, length);
	copy[length] = '\0';
	int lock = locked(path, kind);
	if (lock == -2) {
		note(EBUSY);
		errno = EBUSY;
		return -1;
	}
	wait_for_the_queue();
	ssize_t stored = store(file, copy, length, kind);
	if (lock >= 0)
		close(lock);
	return stored < 0 ? stored : (ssize_t)length;
}
