// SPDX-License-Identifier: GPL-2.0
/*
 * Deliberate faults, each of which the kernel has to report. Otherwise its silence about vrdma.ko
 * would prove nothing. The parameter "fault" selects one. Loading always fails, so nothing has to
 * be unloaded.
 */
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *fault = "";
module_param(fault, charp, 0);

static int use_after_free(void)
{
	u8 *bytes = kmalloc(64, GFP_KERNEL);

	if (!bytes)
		return -ENOMEM;
	kfree(bytes);
	/* Hides from the compiler that it is the same memory. */
	OPTIMIZER_HIDE_VAR(bytes);
	(void)READ_ONCE(bytes[8]);
	return 0;
}

static int out_of_bounds(void)
{
	u8 *bytes = kmalloc(64, GFP_KERNEL), *copy = bytes;

	if (!bytes)
		return -ENOMEM;
	OPTIMIZER_HIDE_VAR(copy);
	(void)READ_ONCE(copy[64]);
	kfree(bytes);
	return 0;
}

static int leak(void)
{
	/* Several, because a stray word in memory may look like a pointer to one of them. */
	for (int i = 0; i < 16; i++) {
		void *lost = kmalloc(1000, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(lost);
		if (!lost)
			return -ENOMEM;
	}
	return 0;
}

static int sleep_in_atomic(void)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	might_sleep();
	spin_unlock(&lock);
	return 0;
}

static int list(void)
{
	LIST_HEAD(head);
	struct list_head entry;

	list_add(&entry, &head);
	list_del(&entry);
	list_del(&entry);
	return 0;
}

static int shift(void)
{
	unsigned int distance = 40;
	u32 word = 1;

	OPTIMIZER_HIDE_VAR(distance);
	word <<= distance;
	OPTIMIZER_HIDE_VAR(word);
	return 0;
}

static int lock_order(void)
{
	static DEFINE_MUTEX(one);
	static DEFINE_MUTEX(two);

	mutex_lock(&one);
	mutex_lock(&two);
	mutex_unlock(&two);
	mutex_unlock(&one);
	mutex_lock(&two);
	mutex_lock(&one);
	mutex_unlock(&one);
	mutex_unlock(&two);
	return 0;
}

static const struct {
	const char *name;
	int (*make)(void);
} faults[] = {
	{ "use-after-free", use_after_free },
	{ "out-of-bounds", out_of_bounds },
	{ "leak", leak },
	{ "sleep-in-atomic", sleep_in_atomic },
	{ "list", list },
	{ "shift", shift },
	{ "lock-order", lock_order },
};

static int __init vrdma_test_faults_init(void)
{
	for (int i = 0; i < ARRAY_SIZE(faults); i++)
		if (!strcmp(fault, faults[i].name))
			return faults[i].make() ?: -ECANCELED;
	return -EINVAL;
}
module_init(vrdma_test_faults_init);

MODULE_DESCRIPTION("Faults on purpose");
MODULE_LICENSE("GPL");
