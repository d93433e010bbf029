// SPDX-License-Identifier: Apache-2.0
// The header in C++: it compiles without a warning, links, and works with a class around it.
#include <lapse.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

class Store
{
      public:
	explicit Store(const std::string &dir)
	{
		lapse_options options;
		lapse_problem problem;
		lapse_options_init(&options, sizeof(options));
		options.data_dir = dir.c_str();
		if (lapse_open(&options, &store_, &problem) != LAPSE_OK)
			std::fprintf(stderr, "%s\n", problem.message);
	}
	~Store()
	{
		lapse_close(store_);
	}
	Store(const Store &) = delete;
	Store &operator=(const Store &) = delete;

	int send(const char *to, const char *content)
	{
		lapse_draft draft = {};
		draft.to = to;
		draft.from = "c++";
		draft.content = content;
		return lapse_message_send(store_, &draft, nullptr);
	}

	std::vector<std::string> inbox(const char *agent)
	{
		std::vector<std::string> contents;
		lapse_message_list(
			store_, agent, false, 0, 10,
			[](void *arg, const lapse_message *m) {
				static_cast<std::vector<std::string> *>(arg)->push_back(m->content);
			},
			&contents);
		return contents;
	}

	std::string mailbox()
	{
		std::string id;
		lapse_mailbox_create(
			store_, nullptr, nullptr, LAPSE_TTL_DEFAULT,
			[](void *arg, const lapse_mailbox *m) {
				*static_cast<std::string *>(arg) = m->id;
			},
			&id);
		return id;
	}

	int mail(const std::string &from, const char *to)
	{
		lapse_mail_draft draft = {};
		draft.to = &to;
		draft.to_count = 1;
		draft.subject = "c++";
		return lapse_mail_send(store_, from.c_str(), &draft, nullptr);
	}

      private:
	lapse_store *store_ = nullptr;
};

int main()
{
	std::string dir = std::filesystem::temp_directory_path() / "lapse-cpp-XXXXXX";
	if (!mkdtemp(dir.data()))
		return 1;
	bool good = false;
	{
		Store store(dir);
		good = store.send("bob", "hello") == LAPSE_OK &&
		       store.send("b/b", "hello") == LAPSE_EINVAL &&
		       store.inbox("bob") == std::vector<std::string>{ "hello" } &&
		       store.mail(store.mailbox(), "bob@elsewhere.org") == LAPSE_EINVAL;
	}
	std::filesystem::remove_all(dir);
	return good ? 0 : 1;
}
